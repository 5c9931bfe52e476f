"""Measure how often `diff`, `merge`, `history` and advice find a true change between simulated studies.

The levels of the processes are drawn, without the runner. The first table has the share of pairs of studies in which
`diff` calls one of several engines slower, whose second study is slower by 3 to 20 %. The second one has the share of
recommendations among three settings, and of different speeds in `merge`: without an effect, with one of 10 and of 20 %.
The third one has the share of series in which `history` finds a change at its study. `benchmarks/proofs.py` has the
coverage of intervals and false verdicts. With 400 pairs, a share of 0.5 has a standard error of 0.025. Takes a quarter
of an hour.

    python -m benchmarks.simulated_studies [--pairs 400] [--tables 1 2 3]
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tabulate import tabulate

from polybench.analysis.diff import SIGNIFICANCE_LEVEL
from polybench.schema.analyses import StudySpread
from polybench.schema.options import Study
from polybench.schema.result import StepTimes
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import LogRatioChange, Repetition, difference_of_shifts, estimate_spread
from polybench.stats.statistics import correct_p_values, summarize_step_times
from tests.factories import measured, saved_again, study
from tests.results.test_known_truth import Shifts, change_points, verdicts
from tests.simulated_machine import Script

_SHIFTS = ((0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.0, 0.03), (0.0, 0.05), (0.02, 0.05))
_SLOWER = (0.03, 0.05, 0.10, 0.20)


def _diff_rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    for own, common in _SHIFTS:
        for engines, saved in itertools.product((1, 2, 5), (0, 5)):
            shifts = Shifts(own, common, saved)
            pairs = [
                verdicts(DrawnStudies(shifts, seed), shifts, engines, _SLOWER)[1:] for seed in range(options.pairs)
            ]
            shares = (_share([rows[0] == "slower" for rows in column]) for column in zip(*pairs, strict=True))
            yield f"{own:.0%}", f"{common:.0%}", engines - 1, saved, *shares


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
        changes = (
            [change_points(DrawnStudies(Shifts(own, common), seed), studies, change) for seed in range(options.pairs)]
            for change in _EFFECTS[1:]
        )
        found = (_share([points == [studies // 2] for points in one]) for one in changes)
        yield f"{own:.0%}", f"{common:.0%}", studies, *found


def _share(hits: Sequence[bool]) -> str:
    return f"{sum(hits) / len(hits):.2f}" if hits else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400, help="pairs or series of studies")
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    tables = (
        (
            ("own shifts", "common shifts", "other engines", "repetitions", *(f"{one:.0%}" for one in _SLOWER)),
            _diff_rows(options),
        ),
        (
            (
                *("own shifts", "common shifts", "repetitions"),
                *(f"{name}, {effect:.0%}" for name in ("advice", "merge") for effect in _EFFECTS),
            ),
            _command_rows(options),
        ),
        (("own shifts", "common shifts", "studies", "10%", "20%"), _history_rows(options)),
    )
    for headers, rows in (tables[number - 1] for number in options.tables):
        print(tabulate(rows, headers, tablefmt="pipe", disable_numparse=True), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
