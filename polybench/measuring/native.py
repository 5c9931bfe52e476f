"""What steps ask of the C library and the kernel: a pass after all timing, in processes that end with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from polybench.core.errors import CellFailed, Unavailable
from polybench.machine.meters.diagnosis import native_allocations
from polybench.measuring.state import StudyState
from polybench.measuring.workers import load, start_worker
from polybench.planning.pace import COUNTED_STEPS
from polybench.planning.plan import counts_natively, row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import CountNative, Loaded, NativeCounted, Prepared
from polybench.wire.process import WorkerProcess


def count_native(state: StudyState, members: Iterable[tuple[CellRecord, WorkerProcess]]) -> None:
    """Count them once for each cell, in workers that are warm and time nothing any more.

    They count one at a time, since threads that wait for their like by spinning take several times as long
    where they have to share cores.

    What cannot be counted is a warning. A repeat of a cell would count the same again.
    """
    counted = [one for one in members if counts_natively(state.plan, one[0].cell)]
    if not counted or not _can_count(state):
        return
    state.progress.stage(_stage(record for record, _ in counted))
    with state.clock.part("native"):
        for record, worker in counted:
            _count(state, record, worker)


def count_native_apart(state: StudyState) -> None:
    """The same in processes of their own, where the last replicate had something to time after it."""
    if state.done.native:
        return
    records = [record for record in state.alive if counts_natively(state.plan, record.cell)]
    if not records or not _can_count(state):
        return
    for group in state.groups(records):
        state.progress.stage(_stage(group))
        with state.clock.part("native"):
            _start_and_count(state, group)
    state.done.native = True
    state.save()


def _can_count(state: StudyState) -> bool:
    counter = native_allocations()
    if not counter.works:
        state.warn(f"{counter.what} are not counted: {counter.reason} ({counter.remedy})")
    return counter.works


def _stage(records: Iterable[CellRecord]) -> str:
    return f"counting native allocations of {', '.join(record.cell.name for record in records)}"


def _start_and_count(state: StudyState, group: Sequence[CellRecord]) -> None:
    """Its workers start side by side."""
    with contextlib.ExitStack() as stack:
        workers = [
            (record, stack.enter_context(start_worker(record, state.logs, "native"))) for record in group
        ]
        for record, worker in workers:
            for request in (load(record), state.prepare(record)):
                worker.send(request)
        timeout = state.plan.study.timeout
        for record, worker in workers:
            with _failures_noted(record, worker):
                worker.receive(load(record), Loaded, timeout)
                worker.receive(state.prepare(record), Prepared, timeout)
                _count(state, record, worker)


def _count(state: StudyState, record: CellRecord, worker: WorkerProcess) -> None:
    request = CountNative(min(COUNTED_STEPS, state.files.steps_in_epoch))
    with _failures_noted(record, worker):
        native = worker.ask(request, NativeCounted, state.plan.study.timeout).allocation
        record.allocations = msgspec.structs.replace(record.allocations, native=native)


@contextlib.contextmanager
def _failures_noted(record: CellRecord, worker: WorkerProcess) -> Iterator[None]:
    try:
        yield
    except (CellFailed, Unavailable) as error:
        remedy = ""
        if isinstance(error, Unavailable):
            remedy = f" ({record.python.remedy(error.remedy, row(record.cell))})"
        record.warnings.append(f"native allocations could not be counted: {error}{remedy}")
        worker.kill()
