"""Few studies of each kind contradict no limit of `make proofs`."""

from __future__ import annotations

import pytest

from benchmarks.proofs import COVERAGE, FALSE, SCENARIOS, Figure, figures

SCENARIOS_BY_NAME = {scenario.name: number for number, scenario in enumerate(SCENARIOS)}
GATE = (
    "a pause every 100 steps",
    "sweep of three batch sizes, drift of 20 % a minute",
    "2 equal rows, quiet",
    "step against block timing",
    "shifts of 0 % (own), 5 % (common), alone, 5 repetitions",
    "shifts of 2 % (own), 5 % (common), beside 1 engine, 5 repetitions",
    "6 studies, shifts of 0 % (own), 5 % (common), alone",
    "6 studies, 5 % up, for 10 studies on average, beside 1 engine",
)


@pytest.mark.parametrize(
    "name", [name if name in GATE else pytest.param(name, marks=pytest.mark.wide) for name in SCENARIOS_BY_NAME]
)
def test_fifty_studies_contradict_no_limit(name: str) -> None:
    for figure in figures(SCENARIOS_BY_NAME[name], 50):
        assert figure.reason or figure.meets(within_chance=True), figure


def test_scenarios_have_names_of_their_own() -> None:
    assert len(SCENARIOS_BY_NAME) == len(SCENARIOS)
    assert set(GATE) <= set(SCENARIOS_BY_NAME)


@pytest.mark.parametrize(
    ("limit", "hits", "studies", "verdict", "verdict_within_chance"),
    [
        (COVERAGE, 1860, 2000, "met", "met"),
        (COVERAGE, 1859, 2000, "MISSED", "within chance"),
        (COVERAGE, 1700, 2000, "MISSED", "MISSED"),
        (FALSE, 120, 2000, "met", "met"),
        (FALSE, 121, 2000, "MISSED", "within chance"),
        (FALSE, 300, 2000, "MISSED", "MISSED"),
        # 50 studies have 10 false verdicts with a probability of 0.0007 if 0.06 are, and 9 with one of 0.003.
        (FALSE, 9, 50, "MISSED", "within chance"),
        (FALSE, 10, 50, "MISSED", "MISSED"),
    ],
)
def test_a_figure_is_judged_by_its_limit(
    limit: float, hits: int, studies: int, verdict: str, verdict_within_chance: str
) -> None:
    figure = Figure("figure", "scenario", hits, studies, limit, None)
    assert [figure.row(within_chance=chance)[-1] for chance in (False, True)] == [verdict, verdict_within_chance]


def test_a_reason_stands_for_a_miss_only() -> None:
    met, missed = (Figure("step", "pauses", hits, 100, COVERAGE, "rare pauses") for hits in (95, 50))
    assert [figure.row(within_chance=False)[-1] for figure in (met, missed)] == ["met", "rare pauses"]
