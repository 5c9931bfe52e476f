from __future__ import annotations

import numpy as np
import pytest
from _components import components

PROCESSES, ROUNDS, SAMPLES = 40, 10, 10


def simulated(rng: np.random.Generator, process: float, one_round: float, sample: float) -> np.ndarray:
    shape = (PROCESSES, ROUNDS, SAMPLES)
    effects = rng.normal(0, process, (PROCESSES, 1, 1)) + rng.normal(0, one_round, (PROCESSES, ROUNDS, 1))
    return np.asarray(effects + rng.normal(0, sample, shape))


@pytest.mark.parametrize("injected", [(0.05, 0.02, 0.03), (0.05, 0.0, 0.03), (0.0, 0.02, 0.03), (0.03, 0.01, 0.0)])
def test_variance_components_are_recovered(injected: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(7)
    found = [components(simulated(rng, *injected)) for _ in range(50)]
    for name, truth in zip(("processes", "rounds", "samples"), injected, strict=True):
        mean_variance = np.mean([getattr(one, name) ** 2 for one in found])
        assert np.sqrt(mean_variance) == pytest.approx(truth, rel=0.06, abs=0.003), name


def test_the_interval_of_process_variance_covers() -> None:
    rng = np.random.default_rng(8)
    found = [components(simulated(rng, 0.03, 0.03, 0.03)[:5]).processes_interval for _ in range(1000)]
    covered = np.mean([low <= 0.03 <= high for low, high in found])
    assert 0.93 <= covered <= 0.97


def test_constant_values_have_no_variance() -> None:
    found = components(np.full((3, 2, 4), 1.5))
    assert found == (0.0, (0.0, 0.0), 0.0, 0.0)
