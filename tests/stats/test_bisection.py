"""The search for a change: how often it is right and wrong, and how many pairs it takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from polybench.stats import bisection

Measure = Callable[[int], float]


def search(
    n: int, measure: Measure, limit: int | None = None
) -> tuple[bisection.Change | None, dict[int, list[float]]]:
    pairs: dict[int, list[float]] = {}
    while (version := bisection.next_version(pairs, n, limit)) is not None:
        pairs.setdefault(version, []).append(measure(version))
    return bisection.find_change(pairs, n), pairs


def test_the_change_is_outside_of_the_credible_range_with_five_percent() -> None:
    pairs = {16: [0.05, 0.06, 0.04], 8: [0.02], 4: [0.0]}
    probabilities, (first, last) = bisection.posterior(pairs, 16), bisection.credible_versions(pairs, 16)
    assert 1 < first < last <= 16
    assert probabilities[: first - 1].sum() < 0.025 <= probabilities[:first].sum()
    assert probabilities[last:].sum() <= 0.025


def outcomes(n: int, log: float, spread: float, searches: int = 300) -> tuple[float, float, int]:
    """Return the shares of right and wrong results, and the largest number of pairs; the tails are Student's."""
    rng = np.random.default_rng(7)
    right = wrong = most = 0
    for _ in range(searches):
        version = int(rng.integers(1, n + 1))
        found, pairs = search(
            n, lambda one, first=version: log * (one >= first) + spread * rng.standard_t(5) / math.sqrt(5 / 3)
        )
        right += found is not None and found.version == version
        wrong += found is not None and found.version != version
        most = max(most, sum(map(len, pairs.values())))
    return right / searches, wrong / searches, most


@pytest.mark.parametrize("n", [2, 7, 64, 300])
@pytest.mark.parametrize("log", [0.1, -0.1], ids=["slower", "faster"])
def test_the_right_version_is_named_within_the_maximum_number_of_pairs(n: int, log: float) -> None:
    right, wrong, most = outcomes(n, log, spread=0.018)
    assert right >= 0.95
    assert wrong <= 0.02
    assert most <= 1.5 * math.log2(n) + 6


@pytest.mark.parametrize("spread", [0.03, 0.05, 0.1])
def test_a_noisy_machine_makes_a_search_inconclusive_but_not_wrong(spread: float) -> None:
    right, wrong, most = outcomes(64, 0.1, spread)
    assert wrong <= 0.02
    assert right < 0.95
    assert most <= bisection.max_pairs(64)


def test_equal_ends_end_the_search_after_six_pairs() -> None:
    rng = np.random.default_rng(3)
    found, pairs = search(64, lambda _: rng.normal(0, 0.02))
    assert found is None
    assert {version: len(logs) for version, logs in pairs.items()} == {64: 6}


def test_more_pairs_make_a_small_change_certain() -> None:
    rng = np.random.default_rng(5)
    found, pairs = search(64, lambda version: 0.05 * (version >= 40) + rng.normal(0, 0.02), limit=60)
    assert found is not None
    assert found.version == 40
    assert sum(map(len, pairs.values())) > bisection.max_pairs(64)


def test_the_interval_contains_the_change_of_the_version() -> None:
    rng = np.random.default_rng(11)
    covered = named = 0
    for _ in range(200):
        found, _pairs = search(64, lambda version: 0.1 * (version >= 23) + rng.normal(0, 0.015))
        if found is not None:
            named += 1
            covered += found.ci95[0] < math.exp(0.1) < found.ci95[1]
            assert found.ci95[0] < found.ratio < found.ci95[1]
            assert found.probability >= bisection.CERTAINTY
    assert named >= 190
    assert covered / named >= 0.93


def test_the_interval_of_a_change_has_the_errors_of_both_of_its_sides() -> None:
    """Three pairs before the change and one after it tell as much as one before it and three after it."""
    widths = []
    for before, after in ((1, 3), (3, 1)):
        pairs = {8: [0.1] * 4, 4: [0.1] * after, 3: [0.0] * before}
        found = bisection.find_change(pairs, 8)
        assert found is not None
        assert found.version == 4
        widths.append(found.ci95[1] / found.ci95[0])
    assert widths[0] == pytest.approx(widths[1])


def test_the_only_possible_change_needs_no_search() -> None:
    found, pairs = search(1, lambda _: 0.1)
    assert found is not None
    assert found.version == 1
    assert {*pairs} == {1}


def test_an_inconclusive_search_has_a_range_that_contains_the_change() -> None:
    rng = np.random.default_rng(2)
    contained = ended = 0
    for _ in range(100):
        found, pairs = search(64, lambda version: 0.06 * (version >= 30) + rng.normal(0, 0.025))
        if found is None and bisection.ends_differ(pairs, 64):
            low, high = bisection.credible_versions(pairs, 64)
            ended += 1
            contained += low <= 30 <= high
    assert ended > 20
    assert contained / ended >= 0.9


def test_both_sides_of_the_change_are_measured() -> None:
    _, pairs = search(64, lambda version: 0.5 * (version >= 17))
    assert {16, 17, 64} <= {*pairs}
