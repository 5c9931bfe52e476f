"""What all workers of a study have in common: their first request, their environment and their log."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from polybench.core.job import COLD_START
from polybench.engines import ENGINES
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded
from polybench.wire.process import WorkerProcess


def start_worker(record: CellRecord, logs: Path, name: str, *, cold: bool = False) -> WorkerProcess:
    """A fresh process for this cell; nothing is asked of it yet.

    Args:
        record: whose environment it has.
        logs: the study's folder of logs.
        name: what tells this worker's log from those of the cell's other workers.
        cold: it may use no compiled code of an earlier process, as a user's own first run could not.
    """
    environment = record.environment | ({COLD_START: "yes"} if cold else {})
    log = logs / f"{record.cell.name.replace('/', '_')}.{name}.log"
    return WorkerProcess(environment, log, record.python)


def start_reference(logs: Path, timeout: float, cpus: Collection[int]) -> WorkerProcess:
    """A process of the float64 reference, loaded; raises CellFailed if it does not answer."""
    row = ENGINES["reference"]
    # NumPy's BLAS gains nothing from more threads.
    environment = worker_environment(row, "cpu", threads=1, cpus=cpus)
    worker = WorkerProcess(environment, logs / "reference.log")
    worker.ask(Load(row.factory), Loaded, timeout)
    return worker


def load(record: CellRecord) -> Load:
    """Import the framework of this cell's engine."""
    return Load(row(record.cell).factory)
