"""The driver: starts the study of every machine group, stores what streams in, goes on where one is lost."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import NamedTuple

import msgspec

from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput, PolybenchError, StrictlyUnavailable
from polybench.core.machines import MachineGroup
from polybench.core.spec import Study
from polybench.fleet.executor import Event, Executor, Lost
from polybench.fleet.gathered import Gathered
from polybench.fleet.machine import MOST_STARTS, Machine, study_of
from polybench.fleet.messages import (
    Cells,
    Finished,
    Hello,
    Message,
    Refused,
    Remaining,
    Saved,
    Stage,
    Task,
    Warned,
)
from polybench.fleet.program import this_program
from polybench.measuring.fleet_checkpoint import FleetCheckpoint, UnfinishedFleets
from polybench.measuring.progress import Progress
from polybench.report.saved_studies import Store

_GRACE_SECONDS = 30.0
"""For all machines to end what they do, once they are told to."""
_WAIT_SECONDS = 60.0
"""At a time: whatever happens is an event, so this wakes nobody who sleeps for a reason."""


class Measured(NamedTuple):
    """What came of one group: its document, or why there is none."""

    label: str
    document: StudyDocument | None
    failure: str | None


class FleetMeasured(NamedTuple):
    """What a fleet came to: groups in their order; by which ID it can be resumed."""

    machines: list[Measured]
    unfinished: str | None
    interrupted: bool


def _with_devices(group: MachineGroup, study: Study) -> MachineGroup:
    """The group with the devices that are measured there, as an executor has to know."""
    return msgspec.structs.replace(group, devices=group.study(study).devices)


class Driver:
    """A fleet while it runs."""

    def __init__(
        self,
        checkpoint: FleetCheckpoint,
        runs: Executor,
        progress: Progress,
        store: Store | None,
        *,
        resumed: bool,
    ) -> None:
        self._checkpoint, self._fleet, self._runs = checkpoint, checkpoint.fleet, runs
        self._kept = None if store is None else UnfinishedFleets(store.folder)
        self._resumed, self._interrupted = resumed, False
        self._remedy = None if store is None else f"polybench resume {checkpoint.id}"
        several = len(self._fleet.groups) > 1
        self._gathered = Gathered(progress, several=several)
        self._machines = {
            group.label: Machine(
                group,
                member,
                study_of(group, self._fleet.study),
                store,
                named=several,
                without_names=self._fleet.anonymous,
            )
            for group, member in zip(self._fleet.groups, checkpoint.members, strict=True)
        }
        self._program = this_program()
        self._come: deque[Event] = deque()
        self._versions = {one.label: one.versions for one in checkpoint.members if one.versions}

    def run(self) -> FleetMeasured:
        """Start what has not come to its end, and wait until it has."""
        if self._resumed:
            for machine in self._machines.values():
                machine.restore()
                self._refuse_other_images(machine)  # those before it are restored, and were heard before
        self._gathered.stage(f"looking at the machines of {self._fleet.on}")
        for text in self._runs.check([_with_devices(one.group, self._fleet.study) for one in self._open()]):
            self._gathered.warn(text)
        self._keep()
        try:
            for machine in self._open():
                self._start(machine)
            self._until_the_end()
        except PolybenchError:
            if not self._resumed and not self._any_document():
                self._drop()
            raise
        return self._measured()

    def _until_the_end(self) -> None:
        deadline = None
        while self._open():
            if deadline is not None and time.monotonic() > deadline:
                return
            try:
                seconds = _WAIT_SECONDS if deadline is None else max(0.1, deadline - time.monotonic())
                self._come += self._runs.events(seconds)
                while self._come:
                    self._take(self._come.popleft())
            except KeyboardInterrupt:
                self._interrupted, deadline = True, time.monotonic() + _GRACE_SECONDS
                self._gathered.stage("ending the studies on all machines")
                self._runs.stop()

    def _open(self) -> list[Machine]:
        """Groups of which something is still to come."""
        return [one for one in self._machines.values() if not one.member.ended and one.failure is None]

    def _start(self, machine: Machine) -> None:
        fleet, member = self._fleet, machine.member
        machine.starts += 1
        task = Task(
            id=member.study_id,
            created=self._checkpoint.created,
            study=machine.group.study(fleet.study),
            program=self._program,
            argv=list(fleet.argv),
            background=fleet.background,
            strict=fleet.strict,
            check=fleet.check,
            anonymous=fleet.anonymous,
            state=machine.state,
        )
        self._runs.start(_with_devices(machine.group, fleet.study), task, member.hostname)

    def _start_again(self, machine: Machine) -> None:
        """Where that is refused now, the other groups go on."""
        try:
            self._start(machine)
        except BadInput as error:
            self._fail(machine, str(error))

    def _take(self, event: Event) -> None:
        machine = self._machines[event.label]
        if machine.member.ended or machine.failure is not None:
            return  # what a machine that was given up says late
        match event.message:
            case Saved() as saved:
                machine.save(saved, self._remedy)
                self._refuse_other_images(machine)
                if machine.warning is not None:
                    self._gathered.warn(machine.warning)
                    machine.warning = None
            case Hello() as hello:
                machine.begun(hello)
                self._compare_versions(event.label, hello)
                self._keep()
            case Finished():
                self._finished(machine)
            case Refused() as refused:
                self._refused(machine, refused)
            case Lost() as lost:
                self._lost(machine, lost)
            case _ as said:
                self._tell(event.label, said)

    def _finished(self, machine: Machine) -> None:
        if machine.document is None or not machine.document.finished:
            self._fail(machine, "it ended without its last document")
        elif machine.complete:
            machine.member.ended = True
        else:
            machine.failure = "interrupted"
        self._keep()

    def _tell(self, label: str, said: Message) -> None:
        match said:
            case Stage(text):
                self._gathered.of(label).stage(text)
            case Remaining(seconds):
                self._gathered.of(label).remaining(seconds)
            case Cells(cells):
                self._gathered.of(label).cells(cells)
            case Warned(text):
                self._gathered.of(label).warn(text)

    def _compare_versions(self, label: str, hello: Hello) -> None:
        """Say what engines lack there, and what is another version than on the machine that began first."""
        first, versions = next(iter(self._versions.items()), (label, hello.versions))
        self._versions[label] = hello.versions
        missing = [name for name, version in hello.versions.items() if version is None]
        if missing:
            self._gathered.of(label).warn(f"{', '.join(missing)} is not installed on {hello.hostname}")
        for name, version in hello.versions.items():
            before = versions.get(name)
            if before != version and None not in (before, version):
                self._gathered.warn(f"{name} is {version} on {label}, and {before} on {first}")

    def _refuse_other_images(self, machine: Machine) -> None:
        """Speeds on other images are no speeds of the same training; it is known as soon as one has come."""
        if machine.document is None:
            return
        for other in self._machines.values():
            if other is machine or other.document is None or other.apart:
                continue
            if machine.document.settings.data_sha256 != other.document.settings.data_sha256:
                machine.apart = True
                label = other.group.label
                self._fail(machine, f"its images are not those of {label}; give both the same --data")
                return

    def _refused(self, machine: Machine, refused: Refused) -> None:
        """Input that no machine could run, or a machine that cannot go on with what another one began."""
        if refused.exit_code == 130:
            machine.failure = "interrupted"
            return
        where = f"{machine.group.label}: " if len(self._machines) > 1 else ""
        if refused.exit_code == StrictlyUnavailable.exit_code:
            raise StrictlyUnavailable(f"{where}{refused.text}")
        if machine.state is not None and machine.starts > 1:
            machine.forget()
            self._gathered.warn(f"{where}{refused.text}; all of it is measured again")
            self._start_again(machine)
        elif refused.exit_code == BadInput.exit_code and (self._resumed or not self._any_document()):
            raise BadInput(f"{where}{refused.text}")
        else:
            self._fail(machine, refused.text)

    def _lost(self, machine: Machine, lost: Lost) -> None:
        if self._interrupted:
            machine.give_up("interrupted", self._remedy, "interrupted")
            return
        machine.lost(lost)
        if lost.again and machine.starts < MOST_STARTS:
            self._gathered.of(machine.group.label).warn(f"{lost.reason}; another machine takes over")
            self._start_again(machine)
        else:
            self._fail(machine, lost.reason)

    def _fail(self, machine: Machine, reason: str) -> None:
        machine.give_up(reason, self._remedy)
        self._gathered.of(machine.group.label).warn(reason)

    def _any_document(self) -> bool:
        return any(one.document is not None for one in self._machines.values())

    def _keep(self) -> None:
        if self._kept is not None:
            with contextlib.suppress(OSError):  # of each document it is said
                self._kept.write(self._checkpoint.id, self._checkpoint)

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.drop(self._checkpoint.id)

    def _measured(self) -> FleetMeasured:
        for machine in self._open():  # what did not end in time
            machine.give_up("interrupted", self._remedy, "interrupted")
        machines = [
            Measured(
                label,
                None if one.apart else one.document,
                one.failure,
            )
            for label, one in self._machines.items()
        ]
        complete = all(one.member.ended for one in self._machines.values())
        if complete or not self._any_document():
            self._drop()
        if not self._any_document():
            if self._interrupted:
                raise KeyboardInterrupt
            raise PolybenchError(machines[0].failure or "nothing came from the machine")
        return FleetMeasured(
            machines, None if complete or self._kept is None else self._checkpoint.id, self._interrupted
        )
