"""A study while it runs: what is known of each cell so far, what was said, and what is saved of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import platformdirs

from polybench.core.document.circumstances import Host, RoundNoise, Settings
from polybench.core.document.study import StudyDocument
from polybench.core.errors import Unavailable
from polybench.core.spec import Cell
from polybench.machine.patience import Patience
from polybench.measuring.checkpoint import Checkpoint, Done, Unfinished
from polybench.measuring.clock import Clock
from polybench.measuring.environments import Environments
from polybench.measuring.progress import CellSoFar, Progress
from polybench.measuring.scratch import prune_logs
from polybench.planning.pace import WARM_UP_STEPS, Block
from polybench.planning.plan import Plan, memory_groups, row
from polybench.planning.shared_files import SharedFiles
from polybench.report.anonymous import anonymous
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context, rounds_of, settings_of, study_toml, summarize
from polybench.report.roofs import KeptRoofs, add_roofs
from polybench.report.saved_studies import Store
from polybench.report.warnings import final_warnings
from polybench.wire.environment import recorded, worker_environment
from polybench.wire.messages import Prepare


class StudyState:
    """What verification, replicates and trainings of one study share.

    Attributes:
        records: one a cell, in the plan's order.
        noise: one entry a round.
        blocks: of each group of cells that is measured, once they are known.
        clock: of the parts of this study.
        cut_short: the budget ended before all rounds were done.
        done: the parts that are finished.
    """

    def __init__(
        self,
        plan: Plan,
        files: SharedFiles,
        environments: Environments,
        progress: Progress,
        store: Store | None,
        context: Context,
        unfinished: Unfinished | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock(progress)
        self.plan, self.files, self.progress = plan, files, progress
        self.records = [record_of(cell, plan, environments) for cell in plan.cells]
        self.noise: list[RoundNoise] = []
        self.blocks: list[Block] = []
        self.cut_short = False
        self.done = Done()
        self.logs = (
            (store.folder if store else platformdirs.user_cache_path("polybench")) / "logs" / context.id
        )
        prune_logs(self.logs.parent)
        self._store, self._context, self._unfinished = store, context, unfinished
        self._warnings: list[str] = []

    @property
    def alive(self) -> list[CellRecord]:
        """The records of cells for which there is a point in starting another worker."""
        return [record for record in self.records if record.alive]

    def warn(self, text: str) -> None:
        """Tell the reader of the results, and whoever watches; once."""
        if text not in self._warnings:
            self._warnings.append(text)
            self.progress.warn(text)

    def tell(self) -> None:
        """Tell whoever watches how far each cell is."""
        self.progress.cells([_so_far(record) for record in self.records])

    @property
    def host(self) -> Host:
        """This machine."""
        return self._context.host

    @property
    def waited(self) -> float:
        """Seconds for a quiet machine, so far."""
        return self._context.host.waited_seconds

    def note_patience(self, patience: Patience) -> None:
        """Keep how long was waited for a quiet machine, and who kept it busy."""
        host = self._context.host
        host.waited_seconds = patience.waited
        host.busiest = [program.name for program in patience.busiest]

    def groups(self, records: Sequence[CellRecord]) -> list[list[CellRecord]]:
        """The records whose workers memory holds at the same time."""
        by_cell = {record.cell: record for record in records}
        groups = memory_groups(self.plan, by_cell, self.files.loaded_bytes)
        return [[by_cell[cell] for cell in group] for group in groups]

    def prepare(self, record: CellRecord) -> Prepare:
        """What a worker of this cell builds and loads before it is measured or trains."""
        files = self.files
        warm_up = min(WARM_UP_STEPS, files.steps_in_epoch)
        return Prepare(self.plan.job(record.cell), str(files.weights), files.epoch, warm_up, files.stream)

    @property
    def settings(self) -> Settings:
        """What all cells share, as far as it is known before anything is measured."""
        return settings_of(self.plan, self.files)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up what an earlier process of this study has measured."""
        for kept, fresh in zip(checkpoint.records, self.records, strict=True):
            kept.python = fresh.python  # what was lent to an environment went with that process
        self.records, self.noise, self.done = checkpoint.records, checkpoint.noise, checkpoint.done
        self._warnings = list(dict.fromkeys([*checkpoint.warnings, *self._warnings]))
        replicates, alive = self.done.replicates / self.plan.study.processes, self.alive
        trainings = sum(len(record.trainings) for record in alive)
        self.clock.expect_the_rest(
            {
                "parity": float(self.done.verified),
                "starts": replicates,
                "rounds": replicates,
                "counting": float(self.done.replicates > 0),
                "native": float(self.done.native),
                "trainings": trainings / max(1, self.plan.study.processes * len(alive)),
            }
        )

    def keep(self) -> None:
        """Have it where the study could go on from here."""
        if self._unfinished is None:
            return
        study = study_toml(self.plan.study)
        checkpoint = Checkpoint(
            context=self._context, study=study, settings=self.settings, records=self.records,
            noise=self.noise, warnings=self._warnings, done=self.done,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # of the document it is said
            self._unfinished.write(self._context.id, checkpoint)

    def beside(self, name: str) -> Path | None:
        """A file that stays with what is kept, until the study has come to its end; None where nothing is."""
        return self._unfinished.folder / self._context.id / name if self._unfinished else None

    def save(self) -> None:
        """Save everything that is known so far."""
        self.keep()
        self._save(self._told(self._document(finished=False)))

    def interrupt(self) -> None:
        """Mark what is not finished."""
        processes = self.plan.study.processes
        for record in self.alive:
            record.status = "interrupted"
            record.reason = f"interrupted after {len(rounds_of(record))} of {processes} processes"
            record.remedy = f"polybench resume {self._context.id}" if self._unfinished else "run it again"
        self.warn("interrupted: only what was finished is shown")

    def finish(self) -> StudyDocument:
        """The complete document, saved if that is possible; logs of cells that went well are removed."""
        result = self._document(finished=True)
        for text in final_warnings(result, self.plan.study, self.cut_short):
            self.warn(text)
        result.warnings = list(self._warnings)
        self._save(self._told(result))
        result.warnings = list(self._warnings)
        if self._unfinished and all(record.status != "interrupted" for record in self.records):
            self._unfinished.drop(self._context.id)
        if all(record.log is None for record in self.records):
            shutil.rmtree(self.logs, ignore_errors=True)
        return self._told(result)

    def _told(self, document: StudyDocument) -> StudyDocument:
        """What others may see of it."""
        if not self._context.anonymous:
            return document
        return anonymous(document, self._store.folder if self._store else None)

    def abandon(self) -> None:
        """Nothing is to be measured, and nothing kept."""
        shutil.rmtree(self.logs, ignore_errors=True)
        if self._unfinished:
            self._unfinished.drop(self._context.id)

    def _save(self, document: StudyDocument) -> None:
        # A full disk is no reason to stop measuring: there may be room again, and all is printed at the end.
        why_not = self._store.try_to_save(document) if self._store is not None else None
        if why_not is not None and document.finished:
            self.warn(why_not)
        elif why_not is not None:
            self.progress.warn(f"{why_not}; tried again later")

    def _document(self, *, finished: bool) -> StudyDocument:
        self._context.host.noise[:] = self.noise
        document = summarize(self._context, self.plan, self.files, self.records, self._warnings, self.blocks)
        document.finished = finished
        document.took = None if self._context.resumed else self.clock.took()
        add_roofs(document, self.plan.model, KeptRoofs())
        return document


def _so_far(record: CellRecord) -> CellSoFar:
    medians = [median(times) for process in rounds_of(record) for times in process]
    seconds = median(medians) if medians else None
    return CellSoFar(record.cell.name, record.parity.status, record.status, len(medians), seconds)


def record_of(cell: Cell, plan: Plan, environments: Environments) -> CellRecord:
    """The record of a cell of which nothing is known yet, but the environment of its workers."""
    threads, heap = plan.workload.threads, plan.study.heap
    precision = plan.workload_of(cell).precision
    project = environments.place(cell).project
    try:
        variables = worker_environment(
            row(cell), cell.device, threads, cell.variants, heap, plan.cpus, project, precision, cell.replicas
        )
        python = environments.interpreter(cell)
        return CellRecord(cell, variables, recorded(os.environ, variables), python)
    except Unavailable as missing:
        record = CellRecord(cell, {})
        record.unavailable(missing)
        return record
