"""Decide on simulated machines with a known truth whether intervals and verdicts keep their limits.

Each figure is the share of simulated studies whose 95 % interval contains the truth (at least 0.93), or in which a
sentence or a verdict calls equal things different (at most 0.06). The real runner measures the studies of `compare` and
`sweep` on the machines of `tests/simulated_machine.py`; those of `diff` and `history` are drawn, five processes each.
The number of a scenario is its seed. A figure that misses its limit ends this with exit code 1, unless its reason is
known, which the table then has in place of the verdict. With 2,000 studies, a share of 0.95 has a standard error of
0.005, and this takes one to two hours. With `--within-chance`, for fewer studies, a figure misses its limit only if the
limit is outside of the 99.9 % bound of a binomial share.

    make proofs [ARGS="--studies 2000 --within-chance --only history"]
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from scipy.special import bdtr

from benchmarks.simulated_studies import DrawnStudies
from polybench.results.sweep import build_sweep_document
from polybench.schema.result import Interval
from tests.results.test_known_truth import (
    STEP,
    Shifts,
    change_points,
    changed_series,
    collecting,
    covers_overhead,
    covers_speedups,
    names_a_difference,
    verdicts,
)
from tests.simulated_machine import THREADS, Machine, Script

COVERAGE, FALSE = 0.93, 0.06
_FASTER = 1.25
_CHANCE = 0.001
_STATE = 0.05
_SERIES, _SLOWER = 20, 0.2

_RARE_PAUSES = "fewer than five pauses are seen; a note says how rare pauses can be that are not in the mean"
_TWO_STATES = "processes in the rarer state may be in no sample; see Processes in two states"
_UNSEEN_SHIFTS = "own and common shifts together exceed the 5 % that are assumed without repetitions"
_FOUND = "only changes that were found at their study count, and those look larger than they are"
_STATE_ALONE = "a state that persists is a change of level; another engine shows it"

Outcomes = Sequence[bool | None]
"""For each figure of a scenario, whether the interval contains the truth or the verdict is false; None without one."""


@dataclass(frozen=True)
class Scenario:
    """Studies of one kind, from which one or more figures follow.

    Attributes:
        name: of the machine and what is measured on it.
        figures: their names.
        limit: `COVERAGE`, which is a minimum, or `FALSE`, which is a maximum.
        study: returns the outcomes of the study with this seed.
        reasons: why a figure may miss its limit.
    """

    name: str
    figures: tuple[str, ...]
    limit: float
    study: Callable[[int], Outcomes]
    reasons: Mapping[str, str] = field(default_factory=dict)


class Figure(NamedTuple):
    """A share of studies, and whether it is on the right side of its limit."""

    name: str
    scenario: str
    hits: int
    studies: int
    limit: float
    reason: str | None

    @property
    def share(self) -> float:
        """The share of studies with a hit."""
        return self.hits / self.studies

    def meets(self, *, within_chance: bool) -> bool:
        """Return whether the share meets its limit, or may do so if more studies were simulated."""
        kept, minimum = (
            (self.hits, self.limit) if self.limit == COVERAGE else (self.studies - self.hits, 1 - self.limit)
        )
        if within_chance:
            return float(bdtr(kept, self.studies, minimum)) >= _CHANCE
        return kept >= minimum * self.studies - 1e-9

    def row(self, *, within_chance: bool) -> tuple[str, ...]:
        """Return the figure's row of the table."""
        verdict = "met" if self.meets(within_chance=False) else self.reason
        if verdict is None:
            verdict = "within chance" if self.meets(within_chance=within_chance) else "MISSED"
        bound = "at least" if self.limit == COVERAGE else "at most"
        return self.name, self.scenario, f"{self.share:.3f}", f"{bound} {self.limit}", verdict


def _covers(interval: Interval | None, truth: float) -> bool | None:
    return None if interval is None else interval[0] <= truth <= interval[1]


def _intervals(machine: Machine, script: Script, other: Script) -> Outcomes:
    document = machine.measure({"torch": script, "tf": other}, prices={"cpu": 1.0})
    torch, tf = document.results
    assert torch.step_time is not None
    assert tf.vs_baseline is not None
    assert tf.cost is not None
    seconds = machine.mean_seconds(script)
    ratio = seconds / machine.mean_seconds(other)
    step = _covers(torch.step_time.ci95, seconds) if machine.has_one_level else None
    return step, _covers(tf.vs_baseline.ci95, ratio), _covers(tf.cost.ci95, 1 / ratio)


_INTERVALS = ("step", "speed-up", "relative cost")
_QUIET, _STEADY = Machine(), Script(STEP)
_MACHINES: Mapping[str, tuple[Machine, Script]] = {
    "quiet": (_QUIET, _STEADY),
    "bursts": (Machine(bursts=0.1), _STEADY),
    "drift of 5 % a minute": (Machine(drift=0.05), _STEADY),
    "3 of 10 processes slow": (Machine(slow_processes=0.3), _STEADY),
    "3 of 10 processes slow, of one engine": (_QUIET, Script(STEP, slow_processes=0.3)),
    **{f"a pause every {n} steps": (_QUIET, collecting(n)) for n in (10, 40, 60, 100, 200, 500, 1000, 2000)},
}
_FURTHER_MACHINES: Mapping[str, tuple[Machine, Script]] = {
    "a jump by 20 %": (Machine(jump=0.2), _STEADY),
    "throttled by 20 % after a minute": (Machine(throttling=0.2), _STEADY),
    "first steps 20 % longer": (Machine(warm_up=0.2), _STEADY),
    "steps correlated by 0.9": (Machine(autocorrelation=0.9), _STEADY),
    "longer steps without variance": (Machine(tail_index=2.0), _STEADY),
}
_EXPLAINED: Mapping[str, Mapping[str, str]] = {
    "3 of 10 processes slow": {"step": _TWO_STATES},
    "3 of 10 processes slow, of one engine": dict.fromkeys(_INTERVALS, _TWO_STATES),
    **{f"a pause every {n} steps": dict.fromkeys(_INTERVALS, _RARE_PAUSES) for n in (500, 1000, 2000)},
}


def _interval_scenarios(machines: Mapping[str, tuple[Machine, Script]]) -> Iterator[Scenario]:
    faster = Script(STEP / _FASTER)
    for name, (machine, script) in machines.items():
        yield Scenario(
            name,
            _INTERVALS,
            COVERAGE,
            lambda seed, machine=machine, script=script: _intervals(replace(machine, seed=seed), script, faster),
            _EXPLAINED.get(name, {}),
        )


def _axis_scenarios() -> Iterator[Scenario]:
    for drift in (0.0, 0.05, 0.2):
        for command, names, covers in (
            ("sweep", ("speed-up, second point", "speed-up, third point"), covers_speedups),
            ("overhead", ("fixed time", "time of an input"), covers_overhead),
        ):
            yield Scenario(
                f"{command} of three batch sizes, drift of {100 * drift:.0f} % a minute",
                names,
                COVERAGE,
                lambda seed, covers=covers, drift=drift: covers(Machine(seed, drift=drift)),
            )


def _calls_different(machine: Machine, scripts: Mapping[str, Script]) -> Outcomes:
    return [names_a_difference(machine.measure(scripts))]


def _leaves_one_out(machine: Machine, points: int) -> Outcomes:
    """Return whether one of these equal points of a sweep is not among the best."""
    axes = {"threads": range(1, points + 1)}
    measured = machine.measure_points({"torch": _STEADY}, axes)
    (curve,) = build_sweep_document(axes, measured, (), THREADS).curves
    return [curve.as_good is None or len(curve.as_good) < points - 1]


def _sentence_scenarios() -> Iterator[Scenario]:
    cases = [
        *((f"{rows} equal rows, quiet", _QUIET, _rows(rows, _STEADY)) for rows in (2, 3, 5, 10)),
        *(
            (f"2 equal rows, {name}", machine, _rows(2, script))
            for name, (machine, script) in _MACHINES.items()
            if name != "quiet" and not script.slow_processes and script.pause_interval in (0, 10, 100)
        ),
        ("step against block timing", _QUIET, {"torch": _STEADY, "tf": Script(STEP, timing_resolution="block")}),
    ]
    for name, machine, scripts in cases:
        yield Scenario(
            name,
            ("false sentence",),
            FALSE,
            lambda seed, machine=machine, scripts=scripts: _calls_different(replace(machine, seed=seed), scripts),
        )
    for points in (2, 4, 8):
        yield Scenario(
            f"sweep of {points} equal points",
            ("false sentence",),
            FALSE,
            lambda seed, points=points: _leaves_one_out(Machine(seed), points),
        )


def _rows(number: int, script: Script) -> dict[str, Script]:
    return dict.fromkeys(("torch" if row == 1 else f"torch#{row}" for row in range(1, number + 1)), script)


_SHIFTS = ((0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.0, 0.05), (0.02, 0.05))
_BESIDE = {1: "alone", 2: "beside 1 engine", 5: "beside 4 engines"}


def _diff_scenarios() -> Iterator[Scenario]:
    for shifts, state, name in _machines_between():
        for engines, beside in _BESIDE.items():
            for saved in (0, 5):
                own = replace(shifts, saved=saved)
                alone = saved == 0 and engines == 1 and shifts.own and shifts.common
                yield Scenario(
                    f"{name}, {beside}, {saved or 'no'} repetitions",
                    ("false verdict of diff",),
                    FALSE,
                    lambda seed, own=own, state=state, engines=engines: _is_false_diff(seed, own, state, engines),
                    {"false verdict of diff": _UNSEEN_SHIFTS} if alone else {},
                )


def _machines_between() -> Iterator[tuple[Shifts, float, str]]:
    for own, common in _SHIFTS:
        yield Shifts(own, common), 0.0, f"shifts of {100 * own:.0f} % (own), {100 * common:.0f} % (common)"
    yield Shifts(), _STATE, "5 % up, for 10 studies on average"


def _is_false_diff(seed: int, shifts: Shifts, state: float, engines: int) -> Outcomes:
    (rows,) = verdicts(DrawnStudies(shifts, seed, state), shifts, engines, ())
    return [bool({"faster", "slower"} & set(rows))]


def _history_scenarios() -> Iterator[Scenario]:
    for shifts, state, name in _machines_between():
        for others in ((), ("tf",)):
            for studies in (6, 20):
                yield Scenario(
                    f"{studies} studies, {name}, {'beside 1 engine' if others else 'alone'}",
                    ("false change point of history",),
                    FALSE,
                    lambda seed, shifts=shifts, state=state, others=others, studies=studies: [
                        bool(change_points(DrawnStudies(shifts, seed, state), studies, others=others))
                    ],
                    {"false change point of history": _STATE_ALONE} if state and not others else {},
                )


def _change_scenarios() -> Iterator[Scenario]:
    for shifts, state, name in _machines_between():
        for others in ((), ("tf",)):
            yield Scenario(
                f"{_SERIES} studies, the last half 20 % slower, {name}, {'beside 1 engine' if others else 'alone'}",
                ("change of history",),
                COVERAGE,
                lambda seed, shifts=shifts, state=state, others=others: [_covers_change(seed, shifts, state, others)],
                {"change of history": _STATE_ALONE if state and not others else _FOUND},
            )


def _covers_change(seed: int, shifts: Shifts, state: float, others: Sequence[str]) -> bool | None:
    """Return whether the interval of the change contains its truth; None if it is not found at its study."""
    series, ids = changed_series(DrawnStudies(shifts, seed, state), _SERIES, _SLOWER, others)
    found = [one.ci95 for one in series.change_points if one.study == ids[_SERIES // 2]]
    return _covers(found[0], 1 / (1 + _SLOWER)) if found else None


# The number of a scenario is its seed, so that new ones follow the others.
SCENARIOS = (
    *_interval_scenarios(_MACHINES),
    *_axis_scenarios(),
    *_sentence_scenarios(),
    *_diff_scenarios(),
    *_history_scenarios(),
    *_interval_scenarios(_FURTHER_MACHINES),
    *_change_scenarios(),
)


def figures(number: int, studies: int) -> Iterator[Figure]:
    """Simulate the scenario of this number, and yield its figures that have a truth."""
    scenario = SCENARIOS[number]
    outcomes = [scenario.study(1_000_000 * number + study) for study in range(studies)]
    for name, column in zip(scenario.figures, zip(*outcomes, strict=True), strict=True):
        known = [outcome for outcome in column if outcome is not None]
        if known:
            yield Figure(name, scenario.name, sum(known), len(known), scenario.limit, scenario.reasons.get(name))


def _print_row(cells: Iterable[str]) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000, help="for each figure")
    parser.add_argument("--within-chance", action="store_true", help="a figure misses only beyond chance")
    parser.add_argument("--only", default="", help="scenarios and figures whose names contain this text")
    options = parser.parse_args()
    gc.freeze()  # each simulated timing block collects garbage
    chance = options.within_chance
    _print_row(("figure", "scenario", "value", "limit", "verdict"))
    _print_row(["---"] * 5)
    missed = 0
    for number, scenario in enumerate(SCENARIOS):
        if options.only in " ".join((scenario.name, *scenario.figures)):
            for figure in figures(number, options.studies):
                _print_row(figure.row(within_chance=chance))
                missed += figure.reason is None and not figure.meets(within_chance=chance)
    sys.exit(f"{missed} figures miss their limit" if missed else 0)


if __name__ == "__main__":
    main()
