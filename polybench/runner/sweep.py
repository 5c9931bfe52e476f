"""Runs the studies of a sweep in turns: process run 1 of every point, then process run 2 of every point, and so on.

What moves the machine then moves all points, and process runs with the same number form a pair.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from polybench.errors import BadInput
from polybench.log import DamagedLog
from polybench.planning import schedule
from polybench.planning.grid import GridPoint, points
from polybench.results.document import study_toml
from polybench.runner.checkpoint import CheckpointStore, SweepCheckpoint, SweepSpec
from polybench.runner.prepare import new_header
from polybench.runner.progress import ConfigurationProgress, PhaseProgress, Progress
from polybench.runner.resume import ChangedSince, discard_study, refuse, refuse_to_anonymize, unfinished_ids
from polybench.runner.scratch import exclusive_lock
from polybench.runner.study import StudyInTurns, resume_in_turns, run_in_turns
from polybench.schema import units
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store


class PointResult(NamedTuple):
    """A point of the sweep and its finished study."""

    point: GridPoint
    document: StudyDocument


class SweepOutcome(NamedTuple):
    """Results of a sweep in the order of its points, and the ID to resume it unless it is complete."""

    spec: SweepSpec
    argv: Sequence[str]
    finished: list[PointResult]
    resumable_id: str | None = None


def run_sweep(
    spec: SweepSpec, progress: Progress, *, store: Store | None, argv: Sequence[str] = (), anonymous: bool = False
) -> SweepOutcome:
    """Measure all points; the arguments are those of `run_study` and `new_header`.

    Data is prepared, and parity checked, before the first turn. The order in a turn is random, so that drift within
    it is not mistaken for an effect of a swept value. Trainings follow the last turn. Ctrl-C ends the studies of all
    points, and returns what they have measured.
    """
    points(spec.study, spec.axes)  # raises BadInput before anything is written
    checkpoint = SweepCheckpoint(
        header=new_header(argv, spec.study_file, anonymous=anonymous),
        study=study_toml(spec.study),
        axes={axis: list(values) for axis, values in spec.axes.items()},
        command=spec.command,
    )
    if store is None:
        return _SweepRun(spec, checkpoint, progress, None).run()
    store.ensure_writable()
    with CheckpointStore(store.folder).lock(checkpoint.header.id):
        return _SweepRun(spec, checkpoint, progress, store).run()


def resume_sweep(id: str, progress: Progress, *, store: Store, anonymous: bool = False) -> SweepOutcome:
    """Resume an unfinished sweep with the process runs that its points lack.

    Raises BadInput if the sweep is not unfinished, it is running, or machine, versions or data have changed.
    """
    store.ensure_writable()
    checkpoints = CheckpointStore(store.folder)
    with checkpoints.lock(id):
        checkpoint = checkpoints.read_unchanged(id, SweepCheckpoint)
        refuse_to_anonymize(checkpoint.header, anonymous=anonymous)
        return _SweepRun(checkpoint.spec, checkpoint, progress, store).run()


class _SweepRun:
    """A running sweep. Points are known by their numbers."""

    def __init__(self, spec: SweepSpec, checkpoint: SweepCheckpoint, progress: Progress, store: Store | None) -> None:
        self._spec, self._checkpoint, self._progress, self._store = spec, checkpoint, progress, store
        self._points = points(spec.study, spec.axes)
        self._running: dict[int, StudyInTurns] = {}
        self._completed: dict[int, int] = {}
        """Completed process runs of the running studies."""
        self._finished: dict[int, PointResult] = {}
        for number, id in checkpoint.started.items():
            document = self._load_finished(id)
            if document is not None:
                self._finished[number] = PointResult(self._points[number], document)

    def run(self) -> SweepOutcome:
        """Prepare the unfinished points, then measure them in turns."""
        self._write_checkpoint()
        with exclusive_lock() as exclusive, contextlib.ExitStack() as stack:
            try:
                for number in range(len(self._points)):
                    if number not in self._finished:
                        self._running[number] = stack.enter_context(contextlib.closing(self._study(number, exclusive)))
                        self._advance(number)
                while self._running:
                    self._take_turn()
            except KeyboardInterrupt:
                self._interrupt()
                return self._make_outcome(self._checkpoint.header.id if self._store else None)
        if self._store is not None:
            CheckpointStore(self._store.folder).remove(self._checkpoint.header.id)
        return self._make_outcome(None)

    def _take_turn(self) -> None:
        """Measure the next process run of each point; a resumed sweep may have stopped within a turn."""
        turn = min(self._completed[number] for number in self._running)
        for number in schedule.order_of_round(list(self._running), self._spec.study.seed, turn, 0):
            if self._completed[number] == turn:
                self._advance(number)

    def _advance(self, number: int) -> None:
        """Continue a study to its next pause or its end; raise KeyboardInterrupt if it was interrupted."""
        try:
            self._completed[number] = next(self._running[number])
        except StopIteration as end:
            self._finish(number, end.value)
            if _is_interrupted(end.value):
                raise KeyboardInterrupt from None

    def _interrupt(self) -> None:
        """Interrupt the other studies."""
        for number in list(self._running):
            try:
                self._running[number].throw(KeyboardInterrupt)
            except StopIteration as end:
                self._finish(number, end.value)

    def _finish(self, number: int, document: StudyDocument) -> None:
        del self._running[number]
        self._finished[number] = PointResult(self._points[number], document)

    def _study(self, number: int, exclusive: bool) -> StudyInTurns:
        """Measure or resume the study of a point; a study with a corrupt checkpoint starts over."""
        checkpoint, store, point = self._checkpoint, self._store, self._points[number]
        prefix = f"point {number + 1} of {len(self._points)} ({units.format_point(point.values)})"
        progress = _PrefixedProgress(self._progress, prefix)
        started_id, anonymous = checkpoint.started.get(number), checkpoint.header.anonymous
        if store is not None and started_id in unfinished_ids(store):
            try:
                resumed = resume_in_turns(started_id, progress, store=store, anonymous=anonymous, exclusive=exclusive)
                return (yield from resumed)
            except DamagedLog as error:
                self._progress.on_warning(f"{prefix}: {error}: it starts over")
                discard_study(started_id, store)
            except ChangedSince as error:
                refuse(checkpoint.header.id, checkpoint.header.argv, error.changes, store.folder)
        tags = StudyFileMetadata(tags=tuple(checkpoint.header.tags))
        header = new_header(checkpoint.header.argv, tags, anonymous=anonymous)
        checkpoint.started[number] = header.id
        self._write_checkpoint()
        return (yield from run_in_turns(point.study, progress, store=store, header=header, exclusive=exclusive))

    def _load_finished(self, id: str) -> StudyDocument | None:
        """Return the document of a finished point, else None."""
        if self._store is None or id in unfinished_ids(self._store):
            return None
        try:
            document = self._store.load(id)
        except BadInput:
            return None
        return document if document.finished and not _is_interrupted(document) else None

    def _write_checkpoint(self) -> None:
        if self._store is not None:
            with contextlib.suppress(OSError):  # each study reports this problem when it saves its document
                CheckpointStore(self._store.folder).write(self._checkpoint)

    def _make_outcome(self, resumable_id: str | None) -> SweepOutcome:
        finished = [self._finished[number] for number in sorted(self._finished)]
        return SweepOutcome(self._spec, self._checkpoint.header.argv, finished, resumable_id)


def _is_interrupted(document: StudyDocument) -> bool:
    return any(result.status == "interrupted" for result in document.results)


class _PrefixedProgress:
    """Adds the sweep's current point to each stage."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def on_stage(self, text: str) -> None:
        self._progress.on_stage(f"{self._prefix}: {text}")

    def on_time_left(self, seconds: float) -> None:
        """Ignore the report: it is only the remaining time of the current point."""

    def on_phase(self, phase: PhaseProgress) -> None:
        self._progress.on_phase(phase._replace(done=None))

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        self._progress.on_configurations(configurations)

    def on_warning(self, text: str) -> None:
        """Ignore the warning, since the sweep's document has those of all points, each once."""
