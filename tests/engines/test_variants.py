"""A variant changes something in its engine; that it computes the same is test_identity.py's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.engines.variants import EFFECTS, Missing, observed
from tests.matrix import CHAINED, LENET_CELLS

VARIANTS = [cell for cell in LENET_CELLS if "+" in cell and cell not in CHAINED]
SLOW = (
    *("torch+compile", "flux+gc_every_step", "flux+gc_off", "flux+train"),
    *("flux+enzyme", "flux+mkl", "flux+mooncake", "flux+reactant"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in VARIANTS]
)
def test_a_variant_has_its_effect_and_the_plain_engine_has_not(
    name: str, processes: Callable[..., Executor], problem: Path
) -> None:
    assert name in EFFECTS, "write in tests/engines/variants.py what this variant changes"
    engine, variant = name.split("+")
    _, plain, changed = EFFECTS[name]
    found = processes(engine).submit(observed, name, (), problem).result()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    assert found == plain != changed
    found = processes(engine, (variant,)).submit(observed, name, (variant,), problem).result()
    if isinstance(found, Missing):  # of a package that the variant needs besides
        pytest.skip(found.reason)
    assert found == changed
