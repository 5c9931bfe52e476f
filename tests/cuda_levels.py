"""The tests of CUDA code by engine and level, found by their mark `cuda_level(engine, level)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polybench.engines import ENGINES

LEVELS = {
    "type-checked": "its calls are checked against the signatures of the installed framework",
    "computed on a stand-in": "it computes real values on a device that stands in for a GPU",
    "lowered for CUDA": "the program that its compiler gets for CUDA is compared with the CPU's",
    "compiled for a card": "its program is compiled to code for a GPU that need not be there",
    "run": "it has run on a GPU",
}
"""From the lowest to the highest; none of them but the last needs a GPU."""

_ROOT = Path(__file__).parents[1]

_NVML = ("meters", "test_on_nvml.py", "NVIDIA H200, 2026-11-27")


class CudaTest(NamedTuple):
    """A test of an engine's CUDA code at one of LEVELS; `where` is the GPU that ran it, with the date."""

    engine: str
    level: str
    test: str
    where: str = ""


def find() -> tuple[CudaTest, ...]:
    """Return the marked tests of all files, and the files of `make gpu` that ran on a GPU."""
    marked = (test for path in sorted(_ROOT.glob("tests/**/test_*.py")) for test in _marked(path))
    engines = ((name, f"test_on_{name}.py", row.ran_on) for name, row in ENGINES.items() if row.ran_on)
    ran = (CudaTest(name, "run", f"tests/gpu/{file}", where) for name, file, where in (*engines, _NVML))
    order = list(LEVELS)
    return tuple(sorted((*marked, *ran), key=lambda test: (test.engine, order.index(test.level), test.test)))


def _marked(path: Path) -> Iterator[CudaTest]:
    for node in ast.parse(path.read_text("utf-8")).body:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.cuda_level":
                engine, level = map(ast.literal_eval, decorator.args)
                yield CudaTest(engine, level, f"{path.relative_to(_ROOT)}::{node.name}")  # type: ignore[union-attr]
