"""Runs the studies of a sweep in turns: process run 1 of every point, then process run 2 of every point, and so on.

What moves the machine then moves all points, and process runs with the same number form a pair.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from polybench.errors import BadInput
from polybench.log import DamagedLog
from polybench.planning import schedule
from polybench.planning.grid import GridPoint, points
from polybench.results.document import study_toml
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.checkpoint import CheckpointStore, SweepCheckpoint, SweepSpec
from polybench.runner.parity import check_parity
from polybench.runner.prepare import new_header, new_log, open_session
from polybench.runner.process_runs import ProcessRuns
from polybench.runner.progress import ConfigurationProgress, PhaseProgress, Progress
from polybench.runner.resume import (
    ChangedSince,
    discard_study,
    refuse,
    refuse_to_anonymize,
    unfinished_ids,
    unfinished_log,
)
from polybench.runner.scratch import exclusive_lock
from polybench.runner.session import Session
from polybench.runner.training import train
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
        self._open: dict[int, Session] = {}
        self._finished: dict[int, PointResult] = {}
        for number, id in checkpoint.started.items():
            document = self._load_finished(id)
            if document is not None:
                self._finished[number] = PointResult(self._points[number], document)

    def run(self) -> SweepOutcome:
        """Prepare the unfinished points, measure their process runs in turns, then what follows all turns."""
        self._write_checkpoint()
        unfinished = [number for number in range(len(self._points)) if number not in self._finished]
        with exclusive_lock() as exclusive, contextlib.ExitStack() as stack:
            try:
                process_runs: dict[int, ProcessRuns] = {}
                for number in unfinished:
                    session = self._open[number] = self._open_session(stack, number, exclusive)
                    check_parity(session)
                    process_runs[number] = ProcessRuns(session)
                while (turn := self._next_turn()) is not None:
                    self._take_turn(turn, process_runs)
                for number in unfinished:
                    count_in_own_processes(self._open[number])
                    train(self._open[number])
                    self._end(number)
            except KeyboardInterrupt:
                for number in list(self._open):
                    self._end(number, interrupted=True)
                return self._make_outcome(self._checkpoint.header.id if self._store else None)
        if self._store is not None:
            CheckpointStore(self._store.folder).remove(self._checkpoint.header.id)
        return self._make_outcome(None)

    def _next_turn(self) -> int | None:
        """Return the number of the process run that comes next; None if every point has all."""
        missing = [session.next_process_run for session in self._open.values()]
        return min((number for number in missing if number is not None), default=None)

    def _take_turn(self, turn: int, process_runs: Mapping[int, ProcessRuns]) -> None:
        """Measure this process run of each point; a resumed sweep may have stopped within a turn."""
        for number in schedule.order_of_round(list(self._open), self._spec.study.seed, turn, 0):
            if self._open[number].next_process_run == turn:
                process_runs[number].measure(turn)

    def _end(self, number: int, *, interrupted: bool = False) -> None:
        """End the study of a point."""
        document = self._open.pop(number).end(interrupted=interrupted)
        self._finished[number] = PointResult(self._points[number], document)

    def _open_session(self, stack: contextlib.ExitStack, number: int, exclusive: bool) -> Session:
        """Resume the study of a point, or start it; a study with a damaged log starts over."""
        checkpoint, store, point = self._checkpoint, self._store, self._points[number]
        prefix = f"point {number + 1} of {len(self._points)} ({units.format_point(point.values)})"
        progress = _PrefixedProgress(self._progress, prefix)
        open_log = partial(open_session, progress=progress, store=store, exclusive=exclusive)
        started_id, anonymous = checkpoint.started.get(number), checkpoint.header.anonymous
        if store is not None and started_id in unfinished_ids(store):
            try:
                with contextlib.ExitStack() as opened:
                    log, study = opened.enter_context(unfinished_log(started_id, store, anonymous=anonymous))
                    session = opened.enter_context(open_log(study, log))
                    stack.enter_context(opened.pop_all())
                    return session
            except DamagedLog as error:
                self._progress.on_warning(f"{prefix}: {error}: it starts over")
                discard_study(started_id, store)
            except ChangedSince as error:
                refuse(checkpoint.header.id, checkpoint.header.argv, error.changes, store.folder)
        tags = StudyFileMetadata(tags=tuple(checkpoint.header.tags))
        header = new_header(checkpoint.header.argv, tags, anonymous=anonymous)
        checkpoint.started[number] = header.id
        self._write_checkpoint()
        log = stack.enter_context(new_log(point.study, header, store))
        return stack.enter_context(open_log(point.study, log))

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
