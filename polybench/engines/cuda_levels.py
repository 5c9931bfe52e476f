"""How far the CUDA code of each engine is tested: `cuda_levels.json`, which `make readme` writes from the tests."""

from __future__ import annotations

import functools
from importlib import resources

import msgspec

LEVELS = {
    "type-checked": "its calls are checked against the signatures of the installed framework",
    "computed on a stand-in": "it computes real values on a device that stands in for a GPU",
    "lowered for CUDA": "the program that its compiler gets for CUDA is compared with the CPU's",
    "compiled for a card": "its program is compiled to code for a GPU that need not be there",
    "run": "it has run on a GPU",
}
"""From the lowest to the highest; none of them but the last needs a GPU."""


class CudaTest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A test of an engine's CUDA code at one of LEVELS; `where` is the GPU that ran it, with the date."""

    engine: str
    level: str
    test: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.level}{f' on {self.where}' if self.where else ''} ({self.test})"


@functools.cache
def cuda_tests() -> tuple[CudaTest, ...]:
    """Return all tests, by engine and level."""
    text = resources.files(__package__).joinpath("cuda_levels.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[CudaTest, ...])


def was_never_run(engine: str) -> bool:
    """Return whether an engine of polybench has CUDA code that no test has run on a GPU."""
    test = highest_level(engine)
    return test is not None and test.level != "run"


def highest_level(engine: str) -> CudaTest | None:
    """Return a test of the engine at its highest level; None without a test."""
    order = list(LEVELS)
    tests = (test for test in cuda_tests() if test.engine == engine)
    return max(tests, key=lambda test: order.index(test.level), default=None)
