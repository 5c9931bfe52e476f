"""Imports run in processes that have a framework already."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.process_pool import ProcessPool, start_server

IMPORTER = "polybench.importer"
MODULES = {
    "test_torch": ("torch.export._trace", f"{IMPORTER}.torch_graph", f"{IMPORTER}.torch_program", f"{IMPORTER}.proof")
}
"""Modules that the imports of a file share; those of other files run in new processes."""


@pytest.fixture(scope="module", autouse=True)
def pooled_imports(request: pytest.FixtureRequest) -> Iterator[None]:
    modules = MODULES.get(request.module.__name__.rpartition(".")[2])
    if modules is None:
        yield
        return
    with ProcessPool(partial(start_server, modules)).replacing():
        yield
