"""Runs the studies of a sweep one after the other, in random order."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.errors import BadInput
from polybench.planning import schedule
from polybench.planning.grid import GridPoint, points
from polybench.planning.plan import Plan, resolve
from polybench.planning.shared_files import dataset_of
from polybench.results.document import study_toml
from polybench.runner.checkpoint import CheckpointStore, CorruptCheckpoint, SweepCheckpoint, SweepSpec, list_changes
from polybench.runner.prepare import new_header
from polybench.runner.progress import ConfigurationProgress, Progress
from polybench.runner.scratch import scratch_folder
from polybench.runner.study import resume_study, run_study
from polybench.runner.workers import make_runs, version_changes
from polybench.schema import units
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized
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

    The order is random, so that drift over hours is not mistaken for an effect of a swept value. Points with
    a parity check come first. Ctrl-C ends the sweep with the current point, and returns the finished results.
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
    """Resume an unfinished sweep: keep its finished points and measure the others.

    Raises BadInput if the sweep is not unfinished, it is running, or machine, versions or data have changed.
    """
    store.ensure_writable()
    checkpoints = CheckpointStore(store.folder)
    with checkpoints.lock(id):
        checkpoint = checkpoints.read_unchanged(id, SweepCheckpoint)
        header = checkpoint.header
        checkpoint.header = msgspec.structs.replace(header, anonymous=header.anonymous or anonymous)
        sweep = _SweepRun(checkpoint.spec, checkpoint, progress, store)
        if sweep.finished:
            progress.on_stage("checking that engine versions are unchanged")
            point, document = next(iter(sweep.finished.values()))
            with scratch_folder() as scratch:
                checkpoints.reject_changed(checkpoint, _study_changes(document, resolve(point.study), scratch))
        return sweep.run()


class _SweepRun:
    """A running sweep; `finished` are the results by point number."""

    def __init__(self, spec: SweepSpec, checkpoint: SweepCheckpoint, progress: Progress, store: Store | None) -> None:
        self._spec, self._checkpoint, self._progress, self._store = spec, checkpoint, progress, store
        self._points = points(spec.study, spec.axes)
        self.finished: dict[int, PointResult] = {}
        for number, id in checkpoint.started.items():
            document = self._load_finished(id)
            if document is not None:
                self.finished[number] = PointResult(self._points[number], document)

    def run(self) -> SweepOutcome:
        """Measure the unfinished points."""
        self._write_checkpoint()
        for position, number in enumerate(self._order(), 1):
            if number in self.finished:
                continue
            point = self._points[number]
            prefix = f"point {position} of {len(self._points)} ({units.format_point(point.values)})"
            document = self._measure(number, _PrefixedProgress(self._progress, prefix))
            self.finished[number] = PointResult(point, document)
            if _is_interrupted(document):
                return self._make_outcome(self._checkpoint.header.id if self._store else None)
        if self._store is not None:
            CheckpointStore(self._store.folder).remove(self._checkpoint.header.id)
        return self._make_outcome(None)

    def _order(self) -> list[int]:
        order = schedule.order_of_round(range(len(self._points)), self._points[0].study.seed, 0, 0)
        return sorted(order, key=lambda number: not self._points[number].study.parity)

    def _measure(self, number: int, progress: Progress) -> StudyDocument:
        """Measure or resume the study of a point; a study with a corrupt checkpoint starts over."""
        checkpoint, store = self._checkpoint, self._store
        started_id = checkpoint.started.get(number)
        if store is not None and started_id in CheckpointStore(store.folder).ids():
            try:
                return resume_study(started_id, progress, store=store, anonymous=checkpoint.header.anonymous)
            except CorruptCheckpoint:
                progress.on_warning(f"the checkpoint of {started_id} is corrupt: this point starts over")
                CheckpointStore(store.folder).remove(started_id)
        header = new_header(checkpoint.header.argv, anonymous=checkpoint.header.anonymous)
        checkpoint.started[number] = header.id
        self._write_checkpoint()
        return run_study(self._points[number].study, progress, store=store, header=header)

    def _load_finished(self, id: str) -> StudyDocument | None:
        """Return the document of a finished point, else None."""
        if self._store is None or id in CheckpointStore(self._store.folder).ids():
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
        finished = [self.finished[number] for number in sorted(self.finished)]
        return SweepOutcome(self._spec, self._checkpoint.header.argv, finished, resumable_id)


def _is_interrupted(document: StudyDocument) -> bool:
    return any(result.status == "interrupted" for result in document.results)


def _study_changes(document: StudyDocument, plan: Plan, scratch: Path) -> list[str]:
    """Describe changes of the data and engine versions of a finished study."""
    images = dataset_of(plan.study, plan.model, scratch)
    saved = [
        (versions, run)
        for run in make_runs(plan, scratch / "environments")
        if "build" in (versions := document.result(run.configuration.name).versions)
    ]
    nested = () if is_anonymized(document.host) else ("build", "environment", "inherited")
    return [
        *list_changes({"data_sha256": document.settings.data_sha256}, {"data_sha256": images.sha256}),
        *version_changes(saved, plan.study.timeout, nested),
    ]


class _PrefixedProgress:
    """Adds the sweep's current point to each stage and warning."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def on_stage(self, text: str) -> None:
        self._progress.on_stage(f"{self._prefix}: {text}")

    def on_time_left(self, seconds: float) -> None:
        """Ignore the report, since it is only the remaining time of the current point."""

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        self._progress.on_configurations(configurations)

    def on_warning(self, text: str) -> None:
        self._progress.on_warning(f"{self._prefix}: {text}")
