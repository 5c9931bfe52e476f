"""A study from beginning to end: files, parity, replicates; saved after each of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import platformdirs
import psutil

from polybench.core.document.circumstances import NO_BACKGROUND, Background, RoundNoise
from polybench.core.document.identity import Parity
from polybench.core.document.study import StudyDocument
from polybench.core.errors import CellFailed, StrictlyUnavailable, Unavailable
from polybench.core.spec import Cell, Study, trains
from polybench.core.statistics import half_width, ratio
from polybench.engines import ENGINES
from polybench.identity.check import Checker, Task
from polybench.machine import host
from polybench.machine.meters.observer import Observer
from polybench.measuring.progress import Progress
from polybench.measuring.rounds import Replicate
from polybench.measuring.scratch import only_study_here
from polybench.measuring.training import Trainer
from polybench.planning import schedule, shared_files
from polybench.planning.estimate import estimate
from polybench.planning.pace import WARM_UP_STEPS, Pace
from polybench.planning.plan import Plan, memory_groups, resolve, row
from polybench.planning.shared_files import SharedFiles
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context, rounds_of, summarize
from polybench.report.saved_studies import Store
from polybench.report.warnings import final_warnings
from polybench.wire.messages import Load, Loaded, Prepare
from polybench.wire.process import WorkerProcess, worker_environment


def run_study(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    argv: Sequence[str] = (),
    background: Background = NO_BACKGROUND,
    strict: bool = False,
    parity_only: bool = False,
) -> StudyDocument:
    """Check and measure every cell of the study.

    A cell that fails becomes a row that says why; Ctrl-C gives what was finished so far, marked.

    Args:
        study: what to measure.
        progress: told what runs, between measurements.
        store: where to save after each finished part; None saves nothing.
        argv: the command line, for the record.
        background: what the study file says beside the study, for the record.
        strict: refuse to measure when an engine or device is unavailable.
        parity_only: check, but measure nothing.

    Raises:
        BadInput: before anything is started.
        StrictlyUnavailable: with `strict`, before anything is measured.
    """
    plan = resolve(study)
    if store is not None:
        store.ensure_writable()
    with only_study_here() as alone, _scratch_folder() as scratch, _observer(plan, parity_only) as observer:
        progress.stage("preparing data")
        run = _Run(
            plan,
            shared_files.write(plan, scratch),
            progress,
            store,
            _context(argv, background),
            scratch,
            observer,
        )
        if not alone:
            run.warn("another study runs on this machine: they disturb each other, and both are less certain")
        if plan.workload.threads > (usable := host.usable_threads()):
            run.warn(
                f"{plan.workload.threads} threads on {usable} usable cores: expect slow and uneven steps"
            )
        try:
            run.verify(strict)
            if not parity_only:
                run.measure()
                run.train()
        except KeyboardInterrupt:
            run.interrupted()
        return run.finish()


def _context(argv: Sequence[str], background: Background) -> Context:
    now = datetime.datetime.now(datetime.UTC)
    return Context(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        created=now.isoformat(timespec="seconds"),
        tool=host.tool(),
        argv=list(argv),
        background=background,
        host=host.this_host(),
    )


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder on disk (not in a memory file system, where an epoch would take memory twice)."""
    cache = Path(platformdirs.user_cache_dir("polybench"))
    for leftover in cache.glob("scratch-*"):
        if not psutil.pid_exists(int(leftover.name.split("-")[1])):
            shutil.rmtree(leftover, ignore_errors=True)  # its study was killed
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"scratch-{os.getpid()}-", dir=cache) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _observer(plan: Plan, parity_only: bool) -> Iterator[Observer | None]:
    """What watches the workers; nothing does where only times are wanted."""
    if parity_only or not plan.study.metrics:
        yield None
        return
    with contextlib.closing(Observer({cell.device for cell in plan.cells})) as observer:
        yield observer


class _Run:
    """One study's state while it runs."""

    def __init__(
        self,
        plan: Plan,
        files: SharedFiles,
        progress: Progress,
        store: Store | None,
        context: Context,
        scratch: Path,
        observer: Observer | None,
    ) -> None:
        self._plan, self._files, self._progress, self._store = plan, files, progress, store
        self._scratch, self._observer, self._context = scratch, observer, context
        self._logs = (store.folder if store else _cache("logs").parent) / "logs" / context.id
        self._records = [
            CellRecord(cell, worker_environment(row(cell), cell.device, plan.workload.threads, cell.variants))
            for cell in plan.cells
        ]
        study = plan.study
        self._pace = Pace(study.steps, study.rounds, study.budget, study.processes)
        self._warnings: list[str] = []
        self._noise: list[RoundNoise] = []
        for text in observer.warnings if observer else ():
            self.warn(text)

    def warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)
            self._progress.warn(text)

    # Parity ------------------------------------------------------------------------------------------

    def verify(self, strict: bool) -> None:
        """Load every distinct cell once: is it there, and does it compute what the reference computes?"""
        study = self._plan.study
        if not study.parity and not strict:
            return  # the first replicate finds out what is there
        first = [record for record in self._records if record.cell.repeat == 1]
        for group in self._groups(first):
            self._verify_group(group)
        by_cell = {(r.cell.engine, r.cell.variants, r.cell.device): r for r in first}
        for record in self._records:
            model = by_cell[record.cell.engine, record.cell.variants, record.cell.device]
            record.status, record.reason, record.remedy = model.status, model.reason, model.remedy
            record.log, record.probe, record.parity = model.log, model.probe, model.parity
        self._save()
        missing = [record for record in self._records if record.status == "unavailable"]
        if strict and missing:
            raise StrictlyUnavailable(
                "; ".join(f"{r.cell.name} is unavailable: {r.reason} ({r.remedy})" for r in missing)
            )

    def _verify_group(self, group: list[CellRecord]) -> None:
        with contextlib.ExitStack() as stack:
            self._progress.stage(f"starting {', '.join(record.cell.name for record in group)}")
            workers = {
                record.cell.name: stack.enter_context(WorkerProcess(record.environment, self._log(record)))
                for record in group
            }
            for record in group:
                workers[record.cell.name].send(_load(record.cell))
            arithmetic = any(row(record.cell).does_arithmetic for record in group)
            checker = self._checker(stack) if self._plan.study.parity and arithmetic else None
            for record in group:
                self._verify_cell(record, workers[record.cell.name], checker)

    def _verify_cell(self, record: CellRecord, worker: WorkerProcess, checker: Checker | None) -> None:
        study, name = self._plan.study, record.cell.name
        try:
            answer = worker.receive(_load(record.cell), study.timeout)
            assert isinstance(answer, Loaded)
            record.probe = answer.probe
            job = self._plan.job(record.cell)
            if checker is None or not row(record.cell).does_arithmetic:
                # Building it tells whether the device is there.
                files = self._files
                request = Prepare(job, str(files.weights), files.parity, stream=files.parity_stream)
                worker.ask(request, study.timeout)
                if not row(record.cell).does_arithmetic:
                    record.parity = Parity("skipped", "this engine plays a script: no arithmetic to check")
                return
            self._progress.stage(f"checking {name} against the float64 reference")
            task = Task(
                job,
                self._files.weights,
                self._files.parity,
                study.parity_steps,
                study.timeout,
                self._files.parity_stream,
            )
            record.parity = checker.check(worker, task)
        except (CellFailed, Unavailable) as error:
            record.fail(error, worker.log)
            worker.kill()

    def _checker(self, stack: contextlib.ExitStack) -> Checker:
        reference = ENGINES["reference"]
        environment = worker_environment(reference, "cpu", threads=1)  # NumPy's BLAS gains nothing from more
        worker = stack.enter_context(WorkerProcess(environment, self._logs / "reference.log"))
        worker.ask(Load(reference.factory), self._plan.study.timeout)
        return Checker(worker, self._scratch, _cache("reference"))

    # Measurement -------------------------------------------------------------------------------------

    def measure(self) -> None:
        """All replicates; the document is saved after each."""
        study, seconds = self._plan.study, 0.0
        processes = study.processes
        expected = estimate(self._plan).measuring  # before anything has been seen
        for number in range(processes):
            alive = [record for record in self._records if record.alive]
            if not alive:
                return
            self._progress.remaining(seconds / number * (processes - number) if number else expected)
            start = time.monotonic()
            self._replicate(alive, number)
            seconds += time.monotonic() - start
            self._save()
        self._progress.remaining(0.0)

    def _replicate(self, alive: list[CellRecord], number: int) -> None:
        study, share = self._plan.study, self._pace.share
        where = f"process {number + 1} of {study.processes}"
        groups = self._groups(alive)
        if len(groups) > 1:
            self.warn(
                f"memory does not hold all workers at once: measured in {len(groups)} groups, one by one"
            )
        for group in groups:
            self._progress.stage(f"{where}: starting {', '.join(record.cell.name for record in group)}")
            replicate = Replicate(group, self._prepare, self._logs, number, study, self._observer)
            replicate.run(
                self._pace,
                share * len(group) / len(alive),
                lambda group=group: self._narrow_enough(group),  # type: ignore[misc]
                lambda done: self._progress.stage(f"{where}: round {done + 1} of {self._pace.rounds}"),
                self._noise.append,
            )
        self._pace.replicate_done()

    def train(self) -> None:
        """Whole trainings, if the study has them: seed by seed, one cell at a time in random order."""
        study = self._plan.study
        if not trains(study):
            return
        trainer = Trainer(study, self._prepare, self._files.test, self._logs)
        for number in range(study.processes):
            seed = study.seed + number
            weights = shared_files.seeded_weights(self._plan, seed, self._scratch)
            alive = [record for record in self._records if record.alive]
            for record in schedule.order_of_round(alive, study.seed, number, 0):
                what = f"training {record.cell.name}, seed {seed}"
                trainer.train(
                    record,
                    seed,
                    weights,
                    lambda epoch, what=what: self._progress.stage(f"{what}, epoch {epoch + 1}"),  # type: ignore[misc]
                )
                self._save()

    def _prepare(self, record: CellRecord) -> Prepare:
        warm_up = min(WARM_UP_STEPS, self._files.steps_in_epoch)
        files = self._files
        job = self._plan.job(record.cell)
        return Prepare(job, str(files.weights), files.epoch, warm_up, files.stream)

    def _narrow_enough(self, group: Sequence[CellRecord]) -> bool:
        """Whether more rounds in this process would hardly narrow the final interval.

        Rounds only have to be small beside the differences between processes, so half the target is enough.
        """
        samples = [rounds_of(record) for record in group if record.alive]
        widths = [half_width(ratio(samples[0], other)) for other in samples[1:]]
        return all(width <= self._plan.study.target / 2 for width in widths)

    def _groups(self, records: Sequence[CellRecord]) -> list[list[CellRecord]]:
        by_cell = {record.cell: record for record in records}
        groups = memory_groups(self._plan, by_cell, self._files.loaded_bytes)
        return [[by_cell[cell] for cell in group] for group in groups]

    # The end -----------------------------------------------------------------------------------------

    def interrupted(self) -> None:
        """Mark what is not finished."""
        processes = self._plan.study.processes
        for record in self._records:
            if record.alive:
                record.status = "interrupted"
                record.reason = f"interrupted after {len(rounds_of(record))} of {processes} processes"
                record.remedy = "run it again; what was measured is kept"
        self.warn("interrupted: only what was finished is shown")

    def finish(self) -> StudyDocument:
        """The complete document, saved; logs of cells that went well are removed."""
        result = self._document()
        for text in final_warnings(result, self._plan.study, self._pace.cut_short):
            self.warn(text)
        result.warnings = list(self._warnings)
        if self._store is not None:
            self._store.save(result)
        if all(record.log is None for record in self._records):
            shutil.rmtree(self._logs, ignore_errors=True)
        return result

    def _document(self) -> StudyDocument:
        self._context.host.noise[:] = self._noise
        pace = (self._pace.rounds, self._pace.steps)
        return summarize(self._context, self._plan, self._files, self._records, self._warnings, pace)

    def _save(self) -> None:
        if self._store is not None:
            self._store.save(self._document())

    def _log(self, record: CellRecord) -> Path:
        return self._logs / f"{record.cell.name.replace('/', '_')}.parity.log"


def _load(cell: Cell) -> Load:
    return Load(row(cell).factory)


def _cache(name: str) -> Path:
    return Path(platformdirs.user_cache_dir("polybench")) / name
