"""What `doctor` says on the machines of a cluster: the node program tells it, through the same executors."""

from __future__ import annotations

import contextlib
import datetime

import msgspec

from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.fleet.executor import Executor, Lost, Place, executor
from polybench.fleet.gathered import Gathered
from polybench.fleet.messages import Examined, Finished, Hello, Message, Refused, Stage, Task, Warned
from polybench.fleet.program import this_program
from polybench.measuring.doctor import Report
from polybench.measuring.progress import Progress
from polybench.measuring.study import new_id

_WAIT_SECONDS = 60.0
"""At a time, as the driver of a study waits."""


class Examination(msgspec.Struct):
    """Of one machine: what it says, or why it runs no study."""

    machine: str
    hostname: str | None = None
    refused: str | None = None
    report: Report | None = None


class Examinations(msgspec.Struct):
    """Of all machines that are there.

    Attributes:
        refused: why a study that wants any of them would not begin.
        warnings: what would be said as it begins.
        interrupted: Ctrl-C came before all had answered.
    """

    on: str
    machines: list[Examination] = []
    refused: str | None = None
    warnings: list[str] = []
    interrupted: bool = False


def examine(on: str, progress: Progress, *, ship: bool = False) -> Examinations:
    """Ask every machine; each has to be free, as for a study.

    Args:
        on: as `--on`.
        progress: told what is waited for.
        ship: send them this polybench.

    Raises:
        BadInput: there is no such cluster, or it does not answer.
    """
    with contextlib.closing(executor(on, ship=ship)) as runs:
        progress.stage(f"looking at the machines of {on}")
        places = runs.machines()
        found = Examinations(on, [Examination(place.group.label) for place in places])
        try:
            found.warnings = runs.check([place.group for place in places])
        except BadInput as error:
            found.refused = str(error)
        try:
            _examine(runs, places, found, Gathered(progress, several=len(places) > 1))
        except KeyboardInterrupt:
            found.interrupted = True
        return found


def _examine(runs: Executor, places: list[Place], found: Examinations, gathered: Gathered) -> None:
    machines = {one.machine: one for one in found.machines}
    for one in machines.values():
        one.refused = "interrupted before it answered"
    open = set(machines)
    for place in places:
        try:
            runs.start(place.group, _task(), place.hostname)
        except BadInput as error:
            machines[place.group.label].refused = str(error)
            open.discard(place.group.label)
    while open:
        for label, message in runs.events(_WAIT_SECONDS):
            _take(machines[label], message, gathered)
            if isinstance(message, Finished | Refused | Lost):
                open.discard(label)


def _task() -> Task:
    """Of no study: the task's is the default one, which needs no images."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Task(id=new_id(), created=created, study=Study(), program=this_program(), examine=True)


def _take(machine: Examination, message: Message | Lost, gathered: Gathered) -> None:
    match message:
        case Hello(hostname=hostname):
            machine.hostname = hostname
        case Examined(report):
            machine.report, machine.refused = report, None
        case Refused(text) | Lost(text):
            machine.refused = text
        case Stage(text):
            gathered.of(machine.machine).stage(text)
        case Warned(text):
            gathered.of(machine.machine).warn(text)
