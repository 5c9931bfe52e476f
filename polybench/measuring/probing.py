"""What is installed now: each cell's framework, asked of a worker that imports it and does nothing else."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polybench.core.errors import CellFailed, Unavailable
from polybench.measuring.workers import load, start_worker
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import Loaded


def probe(records: Sequence[CellRecord], timeout: float) -> None:
    """Give these records their probes; one that is not there or does not import keeps the reason instead.

    Their workers start side by side, and end here. `timeout` is for each of them, in seconds.
    """
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polybench-probe-")))
        # Cold: to make the code that is kept between processes first would take a minute.
        workers = [
            (record, stack.enter_context(start_worker(record, logs, "probe", cold=True)))
            for record in records
            if record.alive
        ]
        for record, worker in workers:
            worker.send(load(record))
        for record, worker in workers:
            try:
                record.probe = worker.receive(load(record), Loaded, timeout).probe
            except (CellFailed, Unavailable) as error:
                record.fail(error, worker.log)
