"""Runs the studies of a sweep in turns: process run 1 of every point, then process run 2 of every point, and so on.

What moves the machine then moves all points, and process runs with the same number form a pair. All points are in one
log, in which each event has the number of its point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polybench.data.disk import remove_folder
from polybench.log import AnyEvent, Log, PointLog, PointStarted, StudyEnded, header_of, split_points
from polybench.machine import host
from polybench.planning import schedule
from polybench.planning.grid import GridPoint, SweepSpec, points
from polybench.planning.plan import resolve
from polybench.planning.study_file import parse
from polybench.results.document import study_toml
from polybench.results.sweep import MeasuredPoint, document_of, points_of, sweep_end
from polybench.runner.allocations import count_in_own_processes
from polybench.runner.parity import check_parity
from polybench.runner.prepare import create_log, header_of_command, new_header, open_session
from polybench.runner.process_runs import ProcessRuns
from polybench.runner.progress import ConfigurationProgress, PhaseProgress, Progress
from polybench.runner.resume import unfinished_log
from polybench.runner.scratch import exclusive_lock
from polybench.runner.session import Session
from polybench.runner.training import train
from polybench.schema import units
from polybench.schema.measurements import OverheadDocument, SweepDocument
from polybench.storage.store import Store


class SweepOutcome(NamedTuple):
    """The document of a sweep, None if it was interrupted before its first point, and the reports of its points."""

    document: SweepDocument | OverheadDocument | None
    points: list[MeasuredPoint]
    log: bytes
    resumable_id: str | None = None
    """The ID to resume it, unless it is complete or not saved."""


def run_sweep(
    spec: SweepSpec, progress: Progress, *, store: Store | None, argv: Sequence[str] = (), anonymous: bool = False
) -> SweepOutcome:
    """Measure all points; the arguments are those of `run_study` and `new_header`.

    Data is prepared, and parity checked, before the first turn. The order in a turn is random, so that drift within
    it is not mistaken for an effect of a swept value. Trainings follow the last turn. Ctrl-C ends the studies of all
    points, and returns what they have measured.
    """
    grid = points(spec.study, spec.axes)  # raises BadInput before anything is written
    header = header_of_command(
        new_header(argv, spec.study_file, anonymous=anonymous),
        spec.command,
        study=study_toml(spec.study),
        axes={axis: list(values) for axis, values in spec.axes.items()},
        usable_threads=host.usable_threads(),
    )
    with create_log(header, store) as log:
        return _SweepRun(grid, log, progress, store).run()


def resume_sweep(id: str, progress: Progress, *, store: Store, anonymous: bool = False) -> SweepOutcome:
    """Measure the process runs that the points of an interrupted or killed sweep lack.

    Raises BadInput if it has finished, it is running, or machine, versions or data have changed; then nothing is
    written.
    """
    with unfinished_log(id, store, anonymous=anonymous) as (log, study):
        return _SweepRun(points(study, log.header.axes), log, progress, store).run()


class _SweepRun:
    """A running sweep. Points are known by their numbers."""

    def __init__(self, grid: list[GridPoint], log: Log, progress: Progress, store: Store | None) -> None:
        self._points, self._log, self._progress, self._store = grid, log, progress, store
        self._earlier = split_points(log.events)
        self._open: dict[int, Session] = {}
        self._finished = {number for number, events in self._earlier.items() if _has_finished(events)}

    def run(self) -> SweepOutcome:
        """Prepare the unfinished points, measure their process runs in turns, then what follows all turns."""
        unfinished = [number for number in range(len(self._points)) if number not in self._finished]
        with exclusive_lock() as exclusive, contextlib.ExitStack() as stack:
            try:
                for number in unfinished:
                    self._open[number] = self._open_session(stack, number, exclusive)
                self._log.release()  # no point has changed
                process_runs: dict[int, ProcessRuns] = {}
                for number in unfinished:
                    check_parity(self._open[number])
                    process_runs[number] = ProcessRuns(self._open[number])
                while (turn := self._next_turn()) is not None:
                    self._take_turn(turn, process_runs)
                for number in unfinished:
                    count_in_own_processes(self._open[number])
                    train(self._open[number])
                    self._open.pop(number).end()
            except KeyboardInterrupt:
                for session in self._open.values():
                    session.end(interrupted=True)
                return self._end(interrupted=True)
            return self._end()

    def _next_turn(self) -> int | None:
        """Return the number of the process run that comes next; None if every point has all."""
        missing = [session.next_process_run for session in self._open.values()]
        return min((number for number in missing if number is not None), default=None)

    def _take_turn(self, turn: int, process_runs: Mapping[int, ProcessRuns]) -> None:
        """Measure this process run of each point; a resumed sweep may have stopped within a turn."""
        seed = self._points[0].study.seed
        for number in schedule.order_of_round(list(self._open), seed, turn, 0):
            if self._open[number].next_process_run == turn:
                process_runs[number].measure(turn)

    def _open_session(self, stack: contextlib.ExitStack, number: int, exclusive: bool) -> Session:
        """Resume the study of a point, or start it."""
        point, events = self._points[number], self._earlier.get(number)
        if events is None:
            study = resolve(point.study).study
            self._log.add(PointStarted(point=number, parameters=point.values, study=study_toml(study)))
            events = split_points([self._log.header, self._log.events[-1]])[number]
        else:
            study = parse(header_of(events).study, f"the study of {header_of(events).id}")
        log = PointLog(self._log, number, events, is_resumed=number in self._earlier)
        prefix = f"point {number + 1} of {len(self._points)} ({units.format_point(point.values)})"
        progress = _PrefixedProgress(self._progress, prefix)
        return stack.enter_context(open_session(study, log, progress, store=self._store, exclusive=exclusive))

    def _end(self, *, interrupted: bool = False) -> SweepOutcome:
        """End the log, and return the document."""
        log, header = self._log, self._log.header
        measured = points_of(log.events)
        document = document_of(header, measured) if measured else None
        log.add(sweep_end(log.events, "interrupted" if interrupted else "finished", document))
        if self._store is not None and (problem := log.save_copy()) is not None:
            self._store.failed_saves[header.id] = problem
            if document is not None:
                document.warnings.append(problem)
        if log.states is not None and self._store is not None and not interrupted:
            remove_folder(log.states, self._store.folder)
        resumable_id = header.id if interrupted and self._store is not None else None
        return SweepOutcome(document, measured, log.text, resumable_id)


def _has_finished(events: Sequence[AnyEvent]) -> bool:
    return isinstance(events[-1], StudyEnded) and events[-1].outcome == "finished"


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
