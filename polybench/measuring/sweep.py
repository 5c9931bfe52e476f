"""The studies of a sweep, one after the other, in random order."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from typing import NamedTuple

from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.machine import host
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.kept import Damaged
from polybench.measuring.progress import CellSoFar, Progress
from polybench.measuring.resume import resume_study
from polybench.measuring.scratch import scratch_folder
from polybench.measuring.study import new_context, new_id, run_study
from polybench.measuring.sweep_checkpoint import Series, SweepCheckpoint, UnfinishedSweeps
from polybench.measuring.unchanged import machine_changes, refuse, study_changes
from polybench.planning import schedule
from polybench.planning.grid import Point, points
from polybench.planning.plan import resolve
from polybench.report.document import study_toml
from polybench.report.saved_studies import Store


class Measured(NamedTuple):
    """A point and its finished study."""

    point: Point
    document: StudyDocument


class Swept(NamedTuple):
    """What a sweep came to: points in the order of their values; by which ID it can be resumed."""

    series: Series
    argv: Sequence[str]
    """With which it was begun."""
    finished: list[Measured]
    unfinished: str | None = None


def run_sweep(
    series: Series,
    progress: Progress,
    *,
    store: Store | None,
    argv: Sequence[str] = (),
    anonymous: bool = False,
) -> Swept:
    """Measure all points.

    In random order, so that what changes with the hours is no effect of what is varied; but the points that
    check identity come first. Ctrl-C ends the sweep with the point that runs; what is finished is returned.

    Args:
        series: what is varied, and what is not.
        progress: told what runs.
        store: where each study is saved as soon as it is finished, and what is needed to go on.
        argv: the command line, for the record.
        anonymous: leave host name, user and paths out of the documents.

    Raises:
        BadInput: before anything is started.
    """
    points(series.study, series.axes)  # what is wrong with them is said before anything is written
    checkpoint = SweepCheckpoint(
        id=new_id(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        argv=list(argv),
        study=study_toml(series.study),
        axes={axis: list(values) for axis, values in series.axes.items()},
        kind=series.kind,
        background=series.background,
        tool=host.tool(),
        host=host.this_host(),
        anonymous=anonymous,
    )
    if store is None:
        return _Sweep(series, checkpoint, progress, None).run()
    store.ensure_writable()
    with UnfinishedSweeps(store.folder).claimed(checkpoint.id):
        return _Sweep(series, checkpoint, progress, store).run()


def check_sweep_here(id: str, store: Store) -> None:
    """Whether this machine could go on with a sweep, as far as that is known without starting an engine.

    Raises:
        BadInput: there is nothing to go on with, or machine or polybench differ.
    """
    unfinished = UnfinishedSweeps(store.folder)
    checkpoint = unfinished.read(id)
    again = unfinished.again(id, checkpoint.argv)
    refuse(id, again, machine_changes(checkpoint.host, checkpoint.tool))


def resume_sweep(id: str, progress: Progress, *, store: Store, anonymous: bool = False) -> Swept:
    """Go on with a sweep that was stopped: points that are finished are kept, and the rest is measured.

    Args:
        id: of the sweep.
        progress: told what runs.
        store: where its studies are saved.
        anonymous: as of `run_sweep`; so is it where it was begun like that.

    Raises:
        BadInput: there is nothing to go on with, it runs still, or machine, versions or data differ.
    """
    store.ensure_writable()
    unfinished = UnfinishedSweeps(store.folder)
    with unfinished.claimed(id):
        checkpoint = unfinished.read(id)
        again = unfinished.again(id, checkpoint.argv)
        refuse(id, again, machine_changes(checkpoint.host, checkpoint.tool))
        checkpoint.anonymous |= anonymous
        sweep = _Sweep(checkpoint.series, checkpoint, progress, store)
        if sweep.finished:
            progress.stage("looking whether all engines are what they were")
            point, document = next(iter(sweep.finished.values()))
            with scratch_folder() as scratch:
                refuse(id, again, study_changes(document, resolve(point.study), scratch))
        return sweep.run()


class _Sweep:
    """A sweep while it runs; `finished` are its points by their numbers."""

    def __init__(
        self, series: Series, checkpoint: SweepCheckpoint, progress: Progress, store: Store | None
    ) -> None:
        self._series, self._checkpoint, self._progress, self._store = series, checkpoint, progress, store
        self._points = points(series.study, series.axes)
        self.finished: dict[int, Measured] = {}
        for number, id in checkpoint.begun.items():
            document = self._finished(id)
            if document is not None:
                self.finished[number] = Measured(self._points[number], document)

    def run(self) -> Swept:
        """Measure what is not finished."""
        self._keep()
        for done, number in enumerate(self._order(), 1):
            if number in self.finished:
                continue
            point = self._points[number]
            of_all = f"point {done} of {len(self._points)} ({units.point(point.values)})"
            document = self._measure(number, _Prefixed(self._progress, of_all))
            self.finished[number] = Measured(point, document)
            if _interrupted(document):
                return self._swept(self._checkpoint.id if self._store else None)
        if self._store is not None:
            UnfinishedSweeps(self._store.folder).drop(self._checkpoint.id)
        return self._swept(None)

    def _order(self) -> list[int]:
        order = schedule.order_of_round(range(len(self._points)), self._points[0].study.seed, 0, 0)
        return sorted(order, key=lambda number: not self._points[number].study.parity)

    def _measure(self, number: int, progress: Progress) -> StudyDocument:
        """The study of this point, or the rest of it; one whose rest nobody knows is measured again."""
        checkpoint, store = self._checkpoint, self._store
        begun = checkpoint.begun.get(number)
        if store is not None and begun in Unfinished(store.folder).ids():
            try:
                return resume_study(begun, progress, store=store, anonymous=checkpoint.anonymous)
            except Damaged:
                progress.warn(f"what {begun} needs to go on is damaged: this point is measured again")
                Unfinished(store.folder).drop(begun)
        context = new_context(checkpoint.argv, anonymous=checkpoint.anonymous)
        checkpoint.begun[number] = context.id
        self._keep()
        return run_study(self._points[number].study, progress, store=store, context=context)

    def _finished(self, id: str) -> StudyDocument | None:
        """The point's document; None where it was stopped, or is not there."""
        if self._store is None or id in Unfinished(self._store.folder).ids():
            return None
        try:
            document = self._store.load(id)
        except BadInput:
            return None
        return document if document.finished and not _interrupted(document) else None

    def _keep(self) -> None:
        if self._store is not None:
            with contextlib.suppress(OSError):  # each study says it of its document
                UnfinishedSweeps(self._store.folder).write(self._checkpoint.id, self._checkpoint)

    def _swept(self, unfinished: str | None) -> Swept:
        finished = [self.finished[number] for number in sorted(self.finished)]
        return Swept(self._series, self._checkpoint.argv, finished, unfinished)


def _interrupted(document: StudyDocument) -> bool:
    return any(result.status == "interrupted" for result in document.results)


class _Prefixed:
    """Says of each stage and warning to which point it belongs."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def stage(self, text: str) -> None:
        self._progress.stage(f"{self._prefix}: {text}")

    def remaining(self, seconds: float) -> None:
        """Nothing: the rest of one point is not that of the sweep."""

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        self._progress.cells(cells)

    def warn(self, text: str) -> None:
        self._progress.warn(f"{self._prefix}: {text}")
