"""The tests of CUDA code by level, found by their mark `cuda_level(engine, level)`: `make readme` writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

from polybench.engines import cuda_levels
from polybench.engines.cuda_levels import LEVELS, CudaTest

FILE = Path(cuda_levels.__file__).with_suffix(".json")
_ROOT = Path(__file__).parents[1]

_H100, _H200 = "NVIDIA H100, 2026-11-28", "NVIDIA H200, 2026-11-27"
_RAN = {"torch": ("test_on_torch.py", _H200), "jax": ("test_on_jax.py", _H100), "meters": ("test_on_nvml.py", _H200)}
"""Files of `make gpu` that ran on a GPU, and where; `meters` are those of NVML."""


def find() -> tuple[CudaTest, ...]:
    """Return the marked tests of all files, and those that ran on a GPU."""
    marked = (test for path in sorted(_ROOT.glob("tests/**/test_*.py")) for test in _marked(path))
    ran = (CudaTest(engine, "run", f"tests/gpu/{name}", where) for engine, (name, where) in _RAN.items())
    order = list(LEVELS)
    return tuple(sorted((*marked, *ran), key=lambda test: (test.engine, order.index(test.level), test.test)))


def _marked(path: Path) -> Iterator[CudaTest]:
    for node in ast.parse(path.read_text("utf-8")).body:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.cuda_level":
                engine, level = map(ast.literal_eval, decorator.args)
                yield CudaTest(engine, level, f"{path.relative_to(_ROOT)}::{node.name}")  # type: ignore[union-attr]


def encode() -> bytes:
    """Return the content of FILE."""
    return msgspec.json.format(msgspec.json.encode(find()), indent=1) + b"\n"
