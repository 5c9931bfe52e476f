"""Candidate estimators compared with polybench's own estimator and with SciPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from _estimators import INTERVALS, PRODUCT, Candidate, candidates, hierarchical_bootstrap
from _simulated import SCENARIOS, TRUE_RATIO, Machine, simulate
from estimators import Source, recorded, redraw, score
from scipy import stats

from polybench.stats.statistics import ratio

SHAPE = (4, 5, 6, 11)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_first_candidate_is_polybenchs_estimator() -> None:
    baseline, other = simulate(SCENARIOS["all"], SHAPE, rng())
    value, (low, high) = PRODUCT.intervals(baseline, other, rng())
    for study in range(SHAPE[0]):
        found = ratio(baseline[study].tolist(), other[study].tolist())
        assert found.speedup == pytest.approx(value[study])
        assert found.ci95 == pytest.approx((low[study], high[study]))


@pytest.mark.parametrize(("name", "method"), [("bootstrap", "percentile"), ("BCa", "BCa")])
def test_bootstraps_agree_with_scipy(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_estimators.DRAWS", 20_000)
    pairs = rng().exponential(1, (1, 12))
    low, high = INTERVALS[name](pairs, rng(), pairs[..., None], np.mean)
    theirs = stats.bootstrap(pairs, np.mean, method=method, n_resamples=20_000, rng=rng()).confidence_interval
    width = theirs.high - theirs.low
    assert low[0] == pytest.approx(theirs.low, abs=0.03 * width)
    assert high[0] == pytest.approx(theirs.high, abs=0.03 * width)


def test_rounds_of_a_process_widen_the_hierarchical_bootstrap() -> None:
    rounds = rng().normal(0, 1, (3, 5, 4))
    pairs = rounds.mean(axis=-1)
    low, high = hierarchical_bootstrap(pairs, rng(), rounds, lambda values: values.mean(axis=-1))
    narrow_low, narrow_high = INTERVALS["bootstrap"](pairs, rng(), rounds, np.mean)
    assert (high - low > narrow_high - narrow_low).all()


@pytest.mark.parametrize("candidate", list(candidates(every=True)), ids=lambda one: "-".join(map(str, one)))
def test_every_candidate_recovers_the_ratio(candidate: Candidate) -> None:
    still = simulate(Machine(process=0.001, round=0.0), (20, 8, 5, 20), rng())
    value, (low, high) = candidate.intervals(*still, rng())
    assert value == pytest.approx(TRUE_RATIO, rel=0.06)
    assert (low <= value).all()
    assert (value <= high).all()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_the_true_ratio(scenario: str) -> None:
    baseline, other = simulate(SCENARIOS[scenario], (3000, 4, 3, 7), rng())
    value, _ = PRODUCT.intervals(baseline, other, rng())
    assert float(np.exp(np.log(value).mean())) == pytest.approx(TRUE_RATIO, rel=0.005)


def margin_of(scenario: str, candidate: Candidate) -> float:
    one, two = simulate(SCENARIOS[scenario], (200, 5, 5, 20), rng())
    return score(candidate, Source("", TRUE_RATIO, [(one, two)]), 0).margin


def test_disruptions_widen_intervals() -> None:
    mean = PRODUCT._replace(over_rounds="mean")
    assert all(margin_of(name, mean) > margin_of("even", mean) for name in SCENARIOS if name != "even")


def test_bursts_widen_intervals_of_polybenchs_estimator_less_than_of_a_mean() -> None:
    assert margin_of("bursts", PRODUCT) < 0.7 * margin_of("bursts", PRODUCT._replace(over_rounds="mean"))


def document(folder: Path, name: str, configurations: list[str], *argv: str) -> None:
    def result(configuration: str) -> dict[str, object]:
        seconds = rng().uniform(1, 2, (4, 3, 5)).tolist()
        seconds[0][0].append(9.0)  # blocks may differ in length
        return {"configuration": configuration, "status": "ok", "step_times": {"values": seconds}}

    results = [result(configuration) for configuration in configurations]
    (folder / name).write_text(json.dumps({"argv": list(argv), "results": results}))


def test_recorded_pairs_are_identical_configurations(tmp_path: Path) -> None:
    document(tmp_path, "one.json", ["torch/cpu", "tf/cpu", "torch/cpu#2", "torch/cpu#3"])
    document(tmp_path, "two.json", ["torch/cpu", "tf/cpu"])
    document(tmp_path, "injected.json", ["torch/cpu", "torch/cpu#2"], "--inject-delay", "torch/cpu#2=0.1")
    ((one, two),) = recorded([tmp_path])
    assert one.shape == two.shape == (3, 4, 3, 5)
    assert recorded([tmp_path / "nowhere"]) == []


def test_redrawn_studies_have_a_true_ratio_of_one() -> None:
    one, two = simulate(SCENARIOS["even"], (8, 5, 4, 9), rng())
    drawn = redraw((one, two), 5000, rng())
    assert drawn is not None
    value, _ = PRODUCT.intervals(*drawn, rng())
    # The second is a quarter faster in all of them: swapped at random, neither is.
    assert float(np.log(value).mean()) == pytest.approx(0.0, abs=0.01)
    assert redraw((one[:1], two[:1]), 10, rng()) is None
