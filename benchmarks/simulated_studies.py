"""Measure coverage of intervals and false verdicts on simulated machines with a known truth.

Each row is a machine of `tests/simulated_machine.py` on which the real runner measured a number of studies. The first
table has the share of 95 % intervals that contain the truth: of the typical step, of the mean step, and of the ratios
of both for an engine that is 1.25 times as fast. The second one has this share for sweeps and overheads over three
batch sizes, which are measured in turns. The third one has the share of studies of equal configurations in which a
sentence calls one of them faster. The other tables draw the levels of the processes, without the runner. The fourth one
has the share of pairs of studies with a significant difference: of equal ones, and of those whose second one is slower.
The fifth one has the share of recommendations among three settings, and of different speeds in `merge`: without an
effect, with one of 10 and of 20 %. The sixth one has those of change points of `history`. With 400 studies, a share of
0.95 has a standard error of 0.011. Takes half an hour.

    python -m benchmarks.simulated_studies [--studies 400] [--rows 100] [--pairs 400] [--tables 1 2 3 4 5 6]
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tabulate import tabulate

from polybench.analysis.diff import SIGNIFICANCE_LEVEL, TOLERANCE
from polybench.render.verdicts import summary_sentences
from polybench.schema.analyses import StudySpread
from polybench.schema.options import Study
from polybench.schema.result import Interval, Result, StepTimes
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import LogRatioChange, Repetition, difference_of_shifts, estimate_spread
from polybench.stats.statistics import correct_p_values, summarize_step_times
from tests.factories import measured, saved_again, study
from tests.results.test_known_truth import Shifts, change_points, covers_overhead, covers_speedups
from tests.simulated_machine import Machine, Script, repeat
from tests.stats.test_between_studies import measured_change

_STEP, _PAUSE_PER_STEP = 0.020, 0.0015
_FASTER = 1.25
_CLAIM = re.compile(r" is [\d.,]+ .*times as fast")


def _collecting(interval: int) -> Script:
    return Script(_STEP, pause_interval=interval, pause_seconds=interval * _PAUSE_PER_STEP)


MACHINES: dict[str, tuple[Machine, Script]] = {
    "quiet": (Machine(), Script(_STEP)),
    "bursts": (Machine(bursts=0.1), Script(_STEP)),
    "drift of 5 % a minute": (Machine(drift=0.05), Script(_STEP)),
    "3 of 10 processes slow": (Machine(slow_processes=0.3), Script(_STEP)),
    **{f"a pause every {n} steps": (Machine(), _collecting(n)) for n in (10, 40, 60, 100, 200)},
}
QUANTITIES = ("step", "speedup", "relative cost")


def hits(machine: Machine, script: Script, processes: int) -> list[bool | None]:
    """Return whether each quantity's interval contains the truth; None without an interval."""
    faster = Script(script.seconds / _FASTER)
    document = machine.measure({"torch": script, "tf": faster}, processes=processes, prices={"cpu": 1.0})
    torch, tf = document.results
    assert torch.step_time is not None
    assert tf.vs_baseline is not None
    means = machine.mean_seconds(script) / machine.mean_seconds(faster)
    mean = None if machine.drift else machine.mean_seconds(script)
    return [
        _covers(torch.step_time.ci95, mean),
        _covers(tf.vs_baseline.ci95, means),
        _covers(_cost_interval(tf), 1 / means),
    ]


def _cost_interval(result: Result) -> Interval | None:
    return getattr(result.cost, "ci95", None)


def _covers(interval: Interval | None, truth: float | None) -> bool | None:
    return None if interval is None or truth is None else interval[0] <= truth <= interval[1]


def false_verdict(machine: Machine, script: Script, processes: int, rows: int) -> bool:
    """Return whether a sentence calls one of these equal configurations faster than the baseline."""
    names = ("torch" if number == 1 else f"torch#{number}" for number in range(1, rows + 1))
    document = machine.measure(dict.fromkeys(names, script), processes=processes)
    return any(_CLAIM.search(sentence) for sentence in summary_sentences(document))


def _coverage_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for name, (machine, script) in MACHINES.items():
        for processes in options.processes:
            found = [hits(one, script, processes) for one in repeat(machine, options.studies)]
            yield (
                name,
                processes,
                *(_share([hit for hit in column if hit is not None]) for column in zip(*found, strict=True)),
            )


def _verdict_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for name, (machine, script) in MACHINES.items():
        for processes in options.processes:
            false = [
                [false_verdict(one, script, processes, rows) for one in repeat(machine, studies)]
                for rows, studies in ((2, options.studies), (10, options.rows))
            ]
            yield name, processes, *map(_share, false)


def _point_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for drift in (0.0, 0.05):
        for processes in options.processes:
            found = [
                [hit for one in repeat(Machine(seed=5, drift=drift), options.studies) for hit in covers(one, processes)]
                for covers in (covers_speedups, covers_overhead)
            ]
            yield f"drift of {drift:.0%} a minute", processes, *map(_share, found)


_SHIFTS = ((0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.0, 0.03), (0.0, 0.05), (0.02, 0.05))
_SLOWER = (0.0, 0.03, 0.05, 0.10, 0.20)


def _between_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for own, common in _SHIFTS:
        for controls, saved in itertools.product((0, 1, 4), (0, 5, 10)):
            rng = np.random.default_rng(controls)
            changes = [measured_change(rng, own, common, controls, saved) for _ in range(options.pairs)]
            shares = [
                _share([_is_slower(change, slower) or (not slower and _is_slower(change, 0, -1)) for change in changes])
                for slower in _SLOWER
            ]
            yield f"{own:.0%}", f"{common:.0%}", controls, saved, *shares


class DrawnStudies:
    """Studies of five processes whose levels differ by 3 %, with shifts of these standard deviations; no runner.

    The machine is slower by `state` in some studies, and stays in its state with a probability of 0.9.
    """

    def __init__(self, shifts: Shifts, seed: int, state: float = 0.0) -> None:
        self._shifts, self._rng, self._ids = shifts, np.random.default_rng(seed), itertools.count()
        self._state, self._is_slow = state, False

    def measure(self, scripts: Mapping[str, Script], **fields: Any) -> StudyDocument:
        """Draw a study of these engines; `fields` are those of `Study`."""
        self._is_slow ^= bool(self._rng.random() < 0.1)
        common = self._rng.normal(0, self._shifts.common) + math.log1p(self._state) * self._is_slow
        results = []
        for engine, script in scripts.items():
            level = common + self._rng.normal(0, self._shifts.own)
            processes = script.seconds * np.exp(level + self._rng.normal(0, 0.03, 5))
            values = [[[seconds]] for seconds in processes.tolist()]
            times = {
                "step_times": StepTimes("step", 1, values),
                "step_time": summarize_step_times(values, "step", values),
            }
            results.append(measured(f"{engine}/cpu", script.seconds, **times))
        return saved_again(study(*results), f"20250101-000000-{next(self._ids):04x}", **fields)


def draw(rng: np.random.Generator, shifts: Shifts, studies: int) -> tuple[list[LogRatioChange], StudySpread]:
    """Draw the levels of equal studies of a machine, and the spread that the saved ones and the first one show."""
    drawn = rng.normal(0, math.hypot(shifts.own, shifts.common), (shifts.saved + studies, 1))
    drawn = drawn + rng.normal(0, 0.03, (len(drawn), 5))
    levels = [LogRatioChange(float(one.mean()), float(one.var(ddof=1)) / 5, 4) for one in drawn]
    repetitions = levels[: shifts.saved + 1]
    return levels[shifts.saved :], estimate_spread(
        [Repetition(str(number), "torch", one.log, one.variance) for number, one in enumerate(repetitions)]
    )


def is_advised(rng: np.random.Generator, shifts: Shifts, faster: float) -> bool:
    """Return whether one of three settings is recommended, of which one is faster by this fraction."""
    (level, *others), spread = draw(rng, shifts, 4)
    others[0] = others[0]._replace(log=others[0].log - math.log1p(faster))
    found = [level.subtract(one).subtract(difference_of_shifts(spread, spread)) for one in others]
    p_values = correct_p_values([change.p_value for change in found])
    return any(
        p < SIGNIFICANCE_LEVEL and change.ratio > 1 + Study().tolerance
        for p, change in zip(p_values, found, strict=True)
    )


def is_merged_as_different(rng: np.random.Generator, shifts: Shifts, faster: float) -> bool:
    """Return whether the speed-up between two machines, one faster by this fraction, excludes 1."""
    ((one,), own), ((two,), other) = draw(rng, shifts, 1), draw(rng, shifts, 1)
    change = one.subtract(two).subtract(difference_of_shifts(own, other))
    low, high = change._replace(log=change.log + math.log1p(faster)).ci95
    return not low <= 1 <= high


_EFFECTS = (0.0, 0.10, 0.20)


def _command_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for (own, common), saved in itertools.product(_SHIFTS, (0, 5)):
        rng = np.random.default_rng(0)
        shares = [
            _share([concludes(rng, Shifts(own, common, saved), effect) for _ in range(options.pairs)])
            for concludes in (is_advised, is_merged_as_different)
            for effect in _EFFECTS
        ]
        yield f"{own:.0%}", f"{common:.0%}", saved, *shares


def _history_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for (own, common), studies in itertools.product(_SHIFTS, (4, 6, 10, 20)):
        false, *changes = (
            [change_points(DrawnStudies(Shifts(own, common), seed), studies, change) for seed in range(options.pairs)]
            for change in _EFFECTS
        )
        found = (_share([points == [studies // 2] for points in one]) for one in changes)
        yield f"{own:.0%}", f"{common:.0%}", studies, _share([bool(points) for points in false]), *found


def _is_slower(change: LogRatioChange, slower: float, sign: int = 1) -> bool:
    """Return whether the verdict is slower (or faster, with sign -1) if the second study is slower by this fraction."""
    found = change._replace(log=sign * change.log - math.log1p(slower))
    return found.p_value < SIGNIFICANCE_LEVEL and found.log < -math.log1p(TOLERANCE)


def _share(hits: Sequence[bool]) -> str:
    return f"{sum(hits) / len(hits):.2f}" if hits else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400, help="studies of two configurations")
    parser.add_argument("--rows", type=int, default=100, help="studies of ten configurations")
    parser.add_argument("--pairs", type=int, default=400, help="pairs of studies that diff compares")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    options = parser.parse_args()
    between = (
        "own shifts",
        "common shifts",
        "controls",
        "repetitions",
        "false",
        *(f"{one:.0%}" for one in _SLOWER[1:]),
    )
    tables = (
        (("machine", "processes", *QUANTITIES), _coverage_rows(options)),
        (("machine", "processes", "speedups of points", "overhead"), _point_rows(options)),
        (("machine", "processes", "false, 2 rows", "false, 10 rows"), _verdict_rows(options)),
        (between, _between_rows(options)),
        (
            (
                *("own shifts", "common shifts", "repetitions"),
                *(f"{name}, {effect:.0%}" for name in ("advice", "merge") for effect in _EFFECTS),
            ),
            _command_rows(options),
        ),
        (("own shifts", "common shifts", "studies", "false", "10%", "20%"), _history_rows(options)),
    )
    for headers, rows in (tables[number - 1] for number in options.tables):
        print(tabulate(rows, headers, tablefmt="pipe", disable_numparse=True), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
