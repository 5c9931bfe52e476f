"""Before anything is timed: each engine is looked for, and checked against the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import platformdirs

from polybench.core.document.identity import Parity
from polybench.core.errors import CellFailed, StrictlyUnavailable, Unavailable
from polybench.identity.check import Checker, ReferenceFailed, Task
from polybench.measuring.state import StudyState
from polybench.measuring.workers import load, start_reference, start_worker
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import Loaded, Prepare, Prepared
from polybench.wire.process import WorkerProcess

NO_ARITHMETIC = Parity("skipped", "this engine plays a script: no arithmetic to check")


def verify(state: StudyState, scratch: Path, *, strict: bool, required: bool = False) -> None:
    """Load every distinct cell once and check it; what is learned holds for its repeats, too.

    Nothing is started where the study has no check, unless `strict`: the first replicate finds out what is
    there.

    Args:
        state: of the study; its records get probe, parity, and the reason of what cannot go on.
        scratch: the study's folder for files.
        strict: refuse to go on when an engine or device is unavailable.
        required: a cell that the reference's failure leaves unchecked has failed.

    Raises:
        StrictlyUnavailable: with `strict`.
    """
    if state.done.verified and strict:
        _refuse_missing(state.records)
    if state.done.verified or (not state.plan.study.parity and not strict):
        return
    first = [record for record in state.alive if record.cell.repeat == 1]
    for group in state.groups(first):
        _Verification(state, scratch, group, required).run()
    _copy_to_repeats(state.records, first)
    if strict:
        _refuse_missing(state.records)
    state.done.verified = True
    state.save()


def _refuse_missing(records: Sequence[CellRecord]) -> None:
    missing = [record for record in records if record.status == "unavailable"]
    if missing:
        raise StrictlyUnavailable(
            "; ".join(f"{r.cell.name} is unavailable: {r.reason} ({r.remedy})" for r in missing)
        )


def _copy_to_repeats(records: Sequence[CellRecord], first: Sequence[CellRecord]) -> None:
    by_cell = {record.cell: record for record in first}
    for record in records:
        model = by_cell.get(msgspec.structs.replace(record.cell, repeat=1), record)
        record.status, record.reason, record.remedy = model.status, model.reason, model.remedy
        record.log, record.probe, record.parity = model.log, model.probe, model.parity


class _Verification:
    """One group of cells: their workers start side by side, and are checked one after the other."""

    def __init__(self, state: StudyState, scratch: Path, group: Sequence[CellRecord], required: bool) -> None:
        self._state, self._scratch, self._group = state, scratch, group
        self._study, self._files = state.plan.study, state.files
        self._required = required
        self._checker: Checker | None = None

    def run(self) -> None:
        """A cell that fails or is not there keeps the reason in its record; the others go on."""
        self._state.progress.stage(f"starting {', '.join(record.cell.name for record in self._group)}")
        with contextlib.ExitStack() as stack:
            workers = [
                (record, stack.enter_context(start_worker(record, self._state.logs, "parity")))
                for record in self._group
            ]
            for record, worker in workers:
                worker.send(load(record))
            if self._study.parity and any(row(record.cell).does_arithmetic for record in self._group):
                with contextlib.suppress(ReferenceFailed):  # tried again for each cell
                    self._checker = self._start_checker(stack)
            for record, worker in workers:
                try:
                    self._verify(record, worker, stack)
                except (CellFailed, Unavailable) as error:
                    record.fail(error, worker.log)
                    worker.kill()
                except ReferenceFailed as error:
                    self._without_reference(record, error)

    def _without_reference(self, record: CellRecord, error: ReferenceFailed) -> None:
        """Unless it is required, the cell is measured without; the next one gets a reference of its own."""
        self._checker = None
        if self._required:
            record.status, record.reason = "failed", f"not checked: the reference {error}"
        record.parity = Parity("skipped", f"the reference {error}")
        self._state.warn(f"{record.cell.name} is not checked: the reference failed ({error})")

    def _start_checker(self, stack: contextlib.ExitStack) -> Checker:
        try:
            reference = start_reference(self._state.logs, self._study.timeout, self._state.plan.cpus)
        except CellFailed as error:
            raise ReferenceFailed(str(error)) from error
        worker = stack.enter_context(reference)
        return Checker(worker, self._scratch, platformdirs.user_cache_path("polybench") / "reference")

    def _verify(self, record: CellRecord, worker: WorkerProcess, stack: contextlib.ExitStack) -> None:
        record.probe = worker.receive(load(record), Loaded, self._study.timeout).probe
        if not self._study.parity or not row(record.cell).does_arithmetic:
            self._build_only(record, worker)
            return
        checker = self._checker = self._checker or self._start_checker(stack)
        self._state.progress.stage(f"checking {record.cell.name} against the float64 reference")
        task = Task(
            self._state.plan.job(record.cell),
            self._files.weights,
            self._files.parity,
            self._study.parity_steps,
            self._study.timeout,
            self._files.parity_stream,
        )
        record.parity = checker.check(worker, task)

    def _build_only(self, record: CellRecord, worker: WorkerProcess) -> None:
        """Building it tells whether the device is there."""
        files, job = self._files, self._state.plan.job(record.cell)
        request = Prepare(job, str(files.weights), files.parity, stream=files.parity_stream)
        worker.ask(request, Prepared, self._study.timeout)
        if not row(record.cell).does_arithmetic:
            record.parity = NO_ARITHMETIC
