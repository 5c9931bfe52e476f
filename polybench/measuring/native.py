"""What steps ask of the C library and the kernel: a pass with processes of its own, after all timing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

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


def count_native(state: StudyState) -> None:
    """Count them once for each cell that went well.

    A group's workers start side by side; they count one at a time, since threads that wait for their like by
    spinning take several times as long where they have to share cores.

    What cannot be counted is a warning. A repeat of a cell would count the same again.
    """
    if state.done.native:
        return
    records = [record for record in state.alive if counts_natively(state.plan, record.cell)]
    if not records:
        return
    counter = native_allocations()
    if not counter.works:
        state.warn(f"{counter.what} are not counted: {counter.reason} ({counter.remedy})")
        return
    for group in state.groups(records):
        state.progress.stage(f"counting native allocations of {', '.join(r.cell.name for r in group)}")
        with state.clock.part("native"):
            _count(state, group)
    state.done.native = True
    state.save()


def _count(state: StudyState, group: Sequence[CellRecord]) -> None:
    count = CountNative(min(COUNTED_STEPS, state.files.steps_in_epoch))
    with contextlib.ExitStack() as stack:
        workers = [
            (record, stack.enter_context(start_worker(record, state.logs, "native"))) for record in group
        ]
        for record, worker in workers:
            for request in (load(record), state.prepare(record)):
                worker.send(request)
        for record, worker in workers:
            try:
                native = _receive(state, record, worker, count).allocation
            except (CellFailed, Unavailable) as error:
                remedy = ""
                if isinstance(error, Unavailable):
                    remedy = f" ({record.python.remedy(error.remedy, row(record.cell))})"
                record.warnings.append(f"native allocations could not be counted: {error}{remedy}")
                worker.kill()
            else:
                record.allocations = msgspec.structs.replace(record.allocations, native=native)


def _receive(
    state: StudyState, record: CellRecord, worker: WorkerProcess, count: CountNative
) -> NativeCounted:
    timeout = state.plan.study.timeout
    worker.receive(load(record), Loaded, timeout)
    worker.receive(state.prepare(record), Prepared, timeout)
    return worker.ask(count, NativeCounted, timeout)
