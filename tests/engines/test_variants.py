"""Effects of variants on their engines. test_parity.py checks that variants compute the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.engine_matrix import CHAINED, LENET_CELLS
from tests.engines.variants import EFFECTS, Missing, observe_variant

VARIANTS = [configuration for configuration in LENET_CELLS if "+" in configuration and configuration not in CHAINED]
SLOW = (
    *("torch+compile", "flux+gc_every_step", "flux+gc_off", "flux+train"),
    *("flux+enzyme", "flux+mkl", "flux+mooncake", "flux+reactant"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in VARIANTS]
)
def test_a_variant_has_its_effect_but_the_plain_engine_does_not(
    name: str, processes: Callable[..., Executor], problem: Path
) -> None:
    assert name in EFFECTS, "add the effect of this variant to tests/engines/variants.py"
    engine, variant = name.split("+")
    _, plain, changed = EFFECTS[name]
    observed = processes(engine).submit(observe_variant, name, (), problem).result()
    if isinstance(observed, Missing):
        pytest.skip(observed.reason)
    assert observed == plain != changed
    observed = processes(engine, (variant,)).submit(observe_variant, name, (variant,), problem).result()
    if isinstance(observed, Missing):  # a package that only the variant needs
        pytest.skip(observed.reason)
    assert observed == changed
