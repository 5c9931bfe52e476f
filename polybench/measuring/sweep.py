"""The studies of a sweep, one after the other, in random order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.measuring.progress import Progress
from polybench.measuring.study import run_study
from polybench.planning import schedule
from polybench.planning.grid import Point
from polybench.report.saved_studies import Store


class Measured(NamedTuple):
    """A point and its finished study."""

    point: Point
    document: StudyDocument


def run_sweep(
    points: Sequence[Point], progress: Progress, *, store: Store | None, argv: Sequence[str] = ()
) -> list[Measured]:
    """Measure all points.

    In random order, so that what changes with the hours is no effect of what is varied; but the points that
    check identity come first. Ctrl-C ends the sweep with the point that runs; what is finished is returned.

    Args:
        points: of planning.grid.
        progress: told what runs.
        store: where each study is saved as soon as it is finished.
        argv: the command line, for the record.

    Returns:
        In the order of `points`.
    """
    order = schedule.order_of_round(range(len(points)), points[0].study.seed, 0, 0)
    order.sort(key=lambda number: not points[number].study.parity)
    finished: dict[int, Measured] = {}
    for done, number in enumerate(order, 1):
        point = points[number]
        listener = _Prefixed(progress, f"point {done} of {len(points)} ({in_words(point.values)})")
        document = run_study(point.study, listener, store=store, argv=argv)
        finished[number] = Measured(point, document)
        if any(result.status == "interrupted" for result in document.results):
            break
    return [finished[number] for number in sorted(finished)]


def in_words(values: dict[str, int]) -> str:
    """`batch size 8, threads 2`."""
    return ", ".join(f"{axis.replace('_', ' ')} {units.count(value)}" for axis, value in values.items())


class _Prefixed:
    """Says of each stage and warning to which point it belongs."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def stage(self, text: str) -> None:
        self._progress.stage(f"{self._prefix}: {text}")

    def remaining(self, seconds: float) -> None:
        """Nothing: the rest of one point is not that of the sweep."""

    def warn(self, text: str) -> None:
        self._progress.warn(f"{self._prefix}: {text}")
