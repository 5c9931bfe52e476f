"""Driver of a study on a cluster: starts each machine group, writes the log of its study, replaces lost machines."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import NamedTuple

import msgspec

from polybench.cluster.executor import Event, Executor
from polybench.cluster.machine_run import MachineRun
from polybench.cluster.messages import (
    Finished,
    Lines,
    Message,
    Moved,
    NodeLost,
    ProgressUpdate,
    Rejected,
    StageChanged,
    Started,
    Task,
    TimeLeft,
    WarningRaised,
    current_fingerprint,
)
from polybench.errors import BadInput, PolybenchError, RequiredEngineMissing
from polybench.log import SettingsChosen
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint
from polybench.runner.progress import ConfigurationProgress, Progress
from polybench.schema.options import MachineGroup
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

_MAX_STARTS = 3
"""Maximum number of starts of a group: what loses three machines would lose a fourth."""
_GRACE_SECONDS = 30.0
"""Maximum duration for all machines to end their studies after a stop request."""
_WAIT_SECONDS = 60.0
"""Maximum duration of one wait for events; every change is an event, so it may be long."""


class MachineResult(NamedTuple):
    """Result of one group: its document, or the reason for its failure."""

    label: str
    document: StudyDocument | None
    failure: str | None
    log: bytes = b""


class ClusterResult(NamedTuple):
    """Results of all groups, in order, and the ID for resuming the rest."""

    machines: list[MachineResult]
    unfinished_id: str | None
    interrupted: bool

    @property
    def only_document(self) -> StudyDocument:
        """The document of the only machine; without one, the driver has raised an error."""
        document = self.machines[0].document
        assert document is not None
        return document


class ClusterProgress:
    """Combined progress of several machines: reports have the machine's label, unless there is only one."""

    def __init__(self, progress: Progress, *, has_several_machines: bool) -> None:
        self._progress, self._has_several_machines = progress, has_several_machines
        self._configurations: dict[str, list[ConfigurationProgress]] = {}
        self._seconds: dict[str, float] = {}

    def label_text(self, label: str, text: str, separator: str = ": ") -> str:
        """Prefix the text with its machine, if there are several."""
        return f"{label}{separator}{text}" if self._has_several_machines else text

    def report(self, label: str, message: Message) -> None:
        """Report what a machine's message says about its progress, if anything."""
        match message:
            case StageChanged(text):
                self._progress.on_stage(self.label_text(label, text))
            case WarningRaised(text):
                self._progress.on_warning(self.label_text(label, text))
            case TimeLeft(seconds):  # machines run in parallel
                self._seconds[label] = seconds
                self._progress.on_time_left(max(self._seconds.values()))
            case ProgressUpdate(configurations):
                names = [self.label_text(label, one.name, ":") for one in configurations]
                self._configurations[label] = [
                    one._replace(name=name) for one, name in zip(configurations, names, strict=True)
                ]
                self._progress.on_configurations([one for some in self._configurations.values() for one in some])


class Driver:
    """A running study on a cluster."""

    def __init__(
        self,
        checkpoint: ClusterCheckpoint,
        executor: Executor,
        progress: Progress,
        store: Store,
        *,
        can_resume: bool = True,
    ) -> None:
        self._checkpoint, self._cluster_run, self._executor = checkpoint, checkpoint.run, executor
        self._checkpoints, self._can_resume = CheckpointStore(store.folder), can_resume
        self._is_resumed = self._is_interrupted = False
        groups = self._cluster_run.groups
        self._progress, self._reports = progress, ClusterProgress(progress, has_several_machines=len(groups) > 1)
        self._machines = {
            group.label: MachineRun(group, machine_study, checkpoint, store, can_resume=can_resume)
            for group, machine_study in zip(groups, checkpoint.machine_studies, strict=True)
        }
        self._fingerprint = current_fingerprint()
        self._pending_events: deque[Event] = deque()
        self._versions = {one.label: one.versions for one in checkpoint.machine_studies if one.versions}

    def restore(self) -> None:
        """Restore what an earlier driver stored."""
        self._is_resumed = True
        for machine in self._machines.values():
            machine.restore()
            self._reject_other_images(machine)  # the machines before it are already restored

    def run(self) -> ClusterResult:
        """Start all unfinished groups and wait until they end."""
        try:
            return self._run()
        finally:
            for machine in self._machines.values():
                if not machine.has_ended:
                    machine.close()

    def _run(self) -> ClusterResult:
        self._progress.on_stage(f"checking the machines of {self._cluster_run.on}")
        unfinished = [machine for machine in self._machines.values() if not machine.has_ended]
        for text in self._executor.check([self._class_of(machine) for machine in unfinished]):
            self._progress.on_warning(text)
        self._save_checkpoint()
        try:
            for machine in unfinished:
                self._start(machine)
            self._wait_for_all()
        except PolybenchError:
            if not self._is_resumed and not self._has_measured():
                self._forget()
            raise
        return self._result()

    def _class_of(self, machine: MachineRun) -> MachineGroup:
        """Return the group with the devices that it measures, which an executor needs."""
        devices = machine.group.study(self._cluster_run.study).devices
        return msgspec.structs.replace(machine.group, devices=devices)

    def _wait_for_all(self) -> None:
        deadline = None
        while not all(machine.has_ended for machine in self._machines.values()):
            if deadline is not None and time.monotonic() > deadline:
                return
            try:
                seconds = _WAIT_SECONDS if deadline is None else max(0.1, deadline - time.monotonic())
                self._pending_events += self._executor.events(seconds)
                while self._pending_events:
                    event = self._pending_events.popleft()
                    machine = self._machines[event.label]
                    if not machine.has_ended:  # otherwise it is a late message of a machine that failed
                        self._handle(machine, event.message)
            except KeyboardInterrupt:
                self._is_interrupted, deadline = True, time.monotonic() + _GRACE_SECONDS
                self._progress.on_stage("ending the studies on all machines")
                self._executor.stop()

    def _start(self, machine: MachineRun) -> None:
        cluster_run, machine_study = self._cluster_run, machine.machine_study
        machine.starts, machine.is_resuming = machine.starts + 1, bool(machine.events)
        label = machine.group.label if len(self._machines) > 1 else None
        header = self._checkpoint.header
        task = Task(
            header=msgspec.structs.replace(header, id=machine_study.study_id, machine_label=label),
            study=machine.group.study(cluster_run.study),
            fingerprint=self._fingerprint,
            strict=cluster_run.strict,
            parity_check=cluster_run.parity_check,
            log=[*machine.events],
        )
        self._executor.start(self._class_of(machine), task, machine_study.hostname)

    def _restart(self, machine: MachineRun) -> None:
        """Start the group again; if the executor rejects it, the other groups continue."""
        try:
            self._start(machine)
        except BadInput as error:
            self._fail(machine, str(error))

    def _handle(self, machine: MachineRun, message: Message) -> None:
        match message:
            case Lines():
                self._handle_lines(machine, message)
            case Moved(reason):
                machine.reset(reason)
                self._warn(machine, reason)
            case Started():
                study = machine.machine_study
                study.hostname, study.versions = message.hostname, message.versions
                self._compare_versions(machine, message)
                self._save_checkpoint()
            case Finished(logs):
                machine.finish(logs)
            case Rejected():
                self._handle_rejected(machine, message)
            case NodeLost():
                self._handle_lost(machine, message)
            case _:
                self._reports.report(machine.group.label, message)

    def _handle_lines(self, machine: MachineRun, lines: Lines) -> None:
        known_problem = machine.problem
        try:
            machine.add(lines)
        except ValueError as error:
            self._fail(machine, str(error))
        if machine.problem not in (None, known_problem):
            self._progress.on_warning(f"{machine.problem}; polybench retries later")
        if any(isinstance(event, SettingsChosen) for event in lines.events):
            self._reject_other_images(machine)

    def _compare_versions(self, machine: MachineRun, started: Started) -> None:
        """Warn about missing packages, and about versions that differ from those on the first machine."""
        label = machine.group.label
        first_label, first_versions = next(iter(self._versions.items()), (label, started.versions))
        self._versions[label] = started.versions
        if missing := [name for name, version in started.versions.items() if version is None]:
            self._warn(machine, f"{', '.join(missing)} is not installed on {started.hostname}")
        for name, version in started.versions.items():
            other_version = first_versions.get(name)
            if other_version != version and None not in (other_version, version):
                self._progress.on_warning(f"{name} is {version} on {label}, but {other_version} on {first_label}")

    def _reject_other_images(self, machine: MachineRun) -> None:
        """Fail a machine whose images differ from another's as soon as its settings arrive."""
        for other in self._machines.values():
            if other is machine or other.is_incomparable or machine.data_sha256 is None or other.data_sha256 is None:
                continue
            if machine.data_sha256 != other.data_sha256:
                machine.is_incomparable = True
                label = other.group.label
                self._fail(machine, f"its images differ from those of {label}; use the same --data for both")
                return

    def _handle_rejected(self, machine: MachineRun, rejected: Rejected) -> None:
        """Handle input that is invalid on any machine, or a log that a replacement cannot resume."""
        text = self._reports.label_text(machine.group.label, rejected.text)
        if rejected.exit_code == 130:
            machine.interrupt()
        elif rejected.exit_code == RequiredEngineMissing.exit_code:
            raise RequiredEngineMissing(text)
        elif machine.is_resuming and machine.starts > 1:
            machine.reset()
            self._progress.on_warning(f"{text}; everything is measured again")
            self._restart(machine)
        elif rejected.exit_code == BadInput.exit_code and (self._is_resumed or not self._has_measured()):
            raise BadInput(text)
        else:
            self._fail(machine, rejected.text)

    def _handle_lost(self, machine: MachineRun, lost: NodeLost) -> None:
        if self._is_interrupted:
            machine.interrupt()
            return
        machine.mark_lost(lost)
        if lost.can_retry and machine.starts < _MAX_STARTS:
            self._warn(machine, f"{lost.reason}; another machine takes over")
            self._restart(machine)
        else:
            self._fail(machine, lost.reason)

    def _fail(self, machine: MachineRun, reason: str) -> None:
        machine.fail(reason)
        self._warn(machine, reason)

    def _warn(self, machine: MachineRun, text: str) -> None:
        self._progress.on_warning(self._reports.label_text(machine.group.label, text))

    def _has_measured(self) -> bool:
        return any(machine.has_measured for machine in self._machines.values())

    def _save_checkpoint(self) -> None:
        with contextlib.suppress(OSError):  # the logs report it as well
            self._checkpoints.write(self._checkpoint)

    def _forget(self) -> None:
        """Remove the checkpoint of a run that cannot be resumed, and logs without measurements."""
        self._checkpoints.remove(self._checkpoint.header.id)
        for machine in self._machines.values():
            if not machine.has_measured:
                machine.reset()

    def _result(self) -> ClusterResult:
        machines = self._machines.values()
        for machine in machines:
            if not machine.has_ended:  # in time
                machine.interrupt()
        results = [MachineResult(one.group.label, one.report(), one.failure, one.text) for one in machines]
        is_complete = all(machine.is_finished for machine in machines)
        has_document = any(result.document is not None for result in results)
        if is_complete or not has_document:
            self._forget()
        if not has_document:
            if self._is_interrupted:
                raise KeyboardInterrupt
            raise PolybenchError(results[0].failure or "the machine sent no document")
        unfinished_id = self._checkpoint.header.id if self._can_resume and not is_complete else None
        return ClusterResult(results, unfinished_id, self._is_interrupted)
