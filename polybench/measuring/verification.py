"""Before anything is timed: each engine is looked for, and checked against the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import platformdirs

from polybench.core.document.identity import UNCHECKED, Parity
from polybench.core.errors import CellFailed, StrictlyUnavailable, Unavailable
from polybench.core.spec import Cell
from polybench.identity.check import Checker, ReferenceFailed
from polybench.measuring.earlier_checks import CheckOutdated, EarlierChecks, confirm, task_of
from polybench.measuring.state import StudyState
from polybench.measuring.workers import load, start_reference, start_worker
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import Loaded, Prepare, Prepared
from polybench.wire.process import WorkerProcess

NO_ARITHMETIC = Parity("skipped", "this engine plays a script: no arithmetic to check")


def verified(
    state: StudyState, scratch: Path, measure: Callable[[], None], *, strict: bool, recheck: bool = False
) -> None:
    """Check every cell, then measure.

    Where a check of an earlier study was taken, and then a worker loads something else, that is checked
    before anything of it is measured.

    Args:
        state: of the study.
        scratch: the study's folder for files.
        measure: all parts of the study that are not finished yet; raises CheckOutdated, and is called again.
        strict: as of `verify`.
        recheck: as of `verify`.

    Raises:
        StrictlyUnavailable: with `strict`.
    """
    while True:
        verify(state, scratch, strict=strict, recheck=recheck)
        try:
            measure()
        except CheckOutdated:
            state.done.verified, recheck = False, True
        else:
            return


def verify(
    state: StudyState, scratch: Path, *, strict: bool, required: bool = False, recheck: bool = False
) -> None:
    """Load one of each cell and its repeats and check it; what is learned holds for its repeats, too.

    Nothing is started where the study has no check, or an earlier study has kept all of it, unless `strict`:
    the first replicate finds out what is there.

    Args:
        state: of the study; its records get probe, parity, and the reason of what cannot go on.
        scratch: the study's folder for files.
        strict: refuse to go on when an engine or device is unavailable.
        required: the check is what was asked for: a cell that the reference's failure leaves unchecked has
            failed, and no check of an earlier study is taken.
        recheck: take no check of an earlier study.

    Raises:
        StrictlyUnavailable: with `strict`.
    """
    if state.done.verified and strict:
        _refuse_missing(state.records)
    if state.done.verified or (not state.plan.study.parity and not strict):
        return
    of_each = _one_of_each(state.alive)
    first = list(of_each.values())
    earlier = EarlierChecks(state)
    taken = []
    if state.plan.study.parity and not (required or recheck):
        taken = [record for record in first if row(record.cell).does_arithmetic and earlier.take(record)]
    state.tell()
    to_start = first if strict else [record for record in first if record not in taken]
    for group in state.groups(to_start):
        with state.clock.part("parity"):
            _Verification(state, scratch, group, earlier, required).run()
    _copy_to_repeats(state.alive, of_each)
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


def _one_of_each(records: Sequence[CellRecord]) -> dict[Cell, CellRecord]:
    """The first of each cell and its repeats that is not checked: its verdict holds for all that are not."""
    found: dict[Cell, CellRecord] = {}
    for record in records:
        if record.parity == UNCHECKED:
            found.setdefault(_without_repeat(record.cell), record)
    return found


def _without_repeat(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, repeat=1)


def _copy_to_repeats(records: Sequence[CellRecord], of_each: Mapping[Cell, CellRecord]) -> None:
    """What has failed by itself, or was confirmed, stays as it is."""
    for record in records:
        if record.parity != UNCHECKED:
            continue
        model = of_each[_without_repeat(record.cell)]
        record.status, record.reason, record.remedy = model.status, model.reason, model.remedy
        record.log, record.probe, record.parity = model.log, model.probe, model.parity
        record.checked = model.checked


class _Verification:
    """One group of cells: their workers start side by side, and are checked one after the other."""

    def __init__(
        self,
        state: StudyState,
        scratch: Path,
        group: Sequence[CellRecord],
        earlier: EarlierChecks,
        required: bool,
    ) -> None:
        self._state, self._scratch, self._group = state, scratch, group
        self._earlier = earlier
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
            if any(self._is_to_be_checked(record) for record in self._group):
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
                self._state.tell()

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
        loaded = worker.receive(load(record), Loaded, self._study.timeout)
        confirm(record, loaded)
        record.probe = loaded.probe
        if not self._is_to_be_checked(record):
            self._build_only(record, worker)
            return
        checker = self._checker = self._checker or self._start_checker(stack)
        self._state.progress.stage(f"checking {record.cell.name} against the float64 reference")
        self._earlier.drop(record)
        parity = checker.check(worker, task_of(self._state, record))
        record.parity = self._earlier.keep(record, loaded, parity)

    def _is_to_be_checked(self, record: CellRecord) -> bool:
        return self._study.parity and row(record.cell).does_arithmetic and record.parity == UNCHECKED

    def _build_only(self, record: CellRecord, worker: WorkerProcess) -> None:
        """Building it tells whether the device is there."""
        files, job = self._files, self._state.plan.job(record.cell)
        request = Prepare(job, str(files.weights), files.parity, stream=files.parity_stream)
        worker.ask(request, Prepared, self._study.timeout)
        if not row(record.cell).does_arithmetic:
            record.parity = NO_ARITHMETIC
