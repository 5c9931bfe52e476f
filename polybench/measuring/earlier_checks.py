"""Identity checks of earlier studies on this machine that hold for cells of this one."""

from __future__ import annotations

import datetime

import msgspec
import platformdirs

from polybench.core.document.identity import Parity
from polybench.identity.check import Task
from polybench.identity.kept_checks import Circumstances, KeptCheck, KeptChecks
from polybench.machine import host
from polybench.measuring.state import StudyState
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import Loaded


def task_of(state: StudyState, record: CellRecord) -> Task:
    """What is checked of this cell."""
    study, files = state.plan.study, state.files
    job = state.plan.job(record.cell)
    return Task(job, files.weights, files.parity, study.parity_steps, study.timeout, files.parity_stream)


class EarlierChecks:
    """What was checked before, by whatever study of this user.

    Args:
        state: of the study that asks.
    """

    def __init__(self, state: StudyState) -> None:
        self._state = state
        self._kept = KeptChecks(platformdirs.user_cache_path("polybench") / "identity")

    def take(self, record: CellRecord) -> bool:
        """Give the record the verdict that is kept for its cell, if there is one.

        It holds once a worker has loaded what was checked then, which `confirm` is told.
        """
        found = self._kept.find(self._key(record))
        if found is None:
            return False
        record.probe, record.parity, record.checked = found.loaded.probe, found.parity, found.loaded
        return True

    def drop(self, record: CellRecord) -> None:
        """Keep none for its cell: it is being checked again, and may neither pass nor come to an end."""
        self._kept.drop(self._key(record))

    def keep(self, record: CellRecord, loaded: Loaded, parity: Parity) -> Parity:
        """The verdict with the time of now, kept for later studies if it is a pass."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        parity = msgspec.structs.replace(parity, checked=now)
        self._kept.keep(self._key(record), KeptCheck(loaded, parity))
        return parity

    def _key(self, record: CellRecord) -> str:
        this = self._state.host
        machine = (this.hostname, this.cpu, host.cpu_features())
        circumstances = Circumstances(
            factory=row(record.cell).factory,
            environment=record.environment | record.inherited,
            python=(record.python.executable, record.python.version),
            machine=machine if record.cell.device == "cpu" else (*machine, *this.gpus),
        )
        return self._kept.key(task_of(self._state, record), circumstances)


class CheckOutdated(Exception):
    """An engine is not what was checked before, or nobody can tell in time.

    It has to be checked before it is measured.
    """


def confirm(record: CellRecord, loaded: Loaded) -> bool:
    """Whether a worker has loaded what an earlier check was of, if the record has one; forgets it if not."""
    if record.checked is None or record.checked == loaded:
        record.checked = None
        return True
    record.forget_check()
    return False
