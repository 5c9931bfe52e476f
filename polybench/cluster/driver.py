"""Driver of a study on a cluster: starts each machine group, stores its results, replaces lost machines."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.cluster.executor import Event, Executor
from polybench.cluster.messages import (
    Finished,
    Message,
    NodeLost,
    ProgressUpdate,
    Rejected,
    Saved,
    StageChanged,
    Started,
    Task,
    TimeLeft,
    WarningRaised,
    current_fingerprint,
)
from polybench.data.disk import read_regular_file
from polybench.errors import BadInput, PolybenchError, RequiredEngineMissing
from polybench.log import decode_lines
from polybench.results.document import report_of, study_toml
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, MachineStudy
from polybench.runner.progress import ConfigurationProgress, Progress
from polybench.schema.options import MachineGroup
from polybench.schema.result import Status
from polybench.schema.study import StudyDocument
from polybench.schema.units import plural
from polybench.storage.anonymize import OMITTED, anonymize, anonymize_study, is_anonymized
from polybench.storage.store import Store, write_file_atomically

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


class MachineRun:
    """A machine group and the known state of its study, stored as soon as it arrives.

    Attributes:
        failure: reason why the group failed.
        starts: number of starts of its node program.
        is_incomparable: True if its images differ from the other machines'.
        warning: an unreported problem with saving.
    """

    def __init__(
        self,
        group: MachineGroup,
        machine_study: MachineStudy,
        cluster: ClusterCheckpoint,
        store: Store,
        *,
        can_resume: bool = True,
    ) -> None:
        self.group, self.machine_study = group, machine_study
        self.document: StudyDocument | None = None
        self.log: bytes | None = None
        self.failure: str | None = None
        self.warning: str | None = None
        self.starts, self.is_incomparable = 0, False
        self._anonymous, self._loss_text = cluster.header.anonymous, ""
        study = study_toml(group.study(cluster.run.study))
        self._study = anonymize_study(study) if self._anonymous else study
        self._label = group.label if len(cluster.run.groups) > 1 else None
        self._hint = f"polybench resume {cluster.header.id}" if can_resume else None
        self._store, self._log_path = store, store.log_path(machine_study.study_id)
        self._logs = store.folder / "logs" / machine_study.study_id

    def restore(self) -> None:
        """Restore what an earlier driver stored."""
        with contextlib.suppress(FileNotFoundError):
            self.log = read_regular_file(self._log_path)
        with contextlib.suppress(BadInput):  # otherwise no document arrived
            self.document = self._store.load(self.machine_study.study_id)
        if self.log is not None and (self.document is None or not self.document.finished):
            with contextlib.suppress(BadInput):  # its machine refuses a damaged log
                reported = self._read(self.log)
                if self.document is None or reported.finished:  # the driver was killed before it saved the report
                    self.document = reported
                    self._save()
        if self.document is None:
            self.machine_study.finished = False
            return
        if self.document.finished and self.is_complete:  # the driver was killed before it received Finished
            self.machine_study.finished = True
        if self._anonymous and not is_anonymized(self.document.host):  # it was started without --anonymous
            self._save()

    @property
    def has_ended(self) -> bool:
        """True if its study has finished or failed."""
        return self.machine_study.finished or self.failure is not None

    @property
    def is_complete(self) -> bool:
        """True if its study has ended without an interruption."""
        document = self.document
        return document is not None and all(result.status != "interrupted" for result in document.results)

    def reset(self) -> None:
        """Delete the log: no machine can resume it, so everything is measured again."""
        self.log = None
        self._log_path.unlink(missing_ok=True)

    def mark_lost(self, lost: NodeLost) -> None:
        """Note that its machine was lost; a replacement repeats the unfinished process run."""
        results = self.document.results if self.document else []
        process_runs = max((len(result.nested_step_times) for result in results), default=0)
        after = f", after {plural(process_runs, 'process run')}" if process_runs else ""
        self._loss_text = f"{self._public(self.machine_study.hostname or 'its machine')} was lost{after}"
        self._loss_text += f" ({self._public(lost.reason)})"

    def _public(self, text: str) -> str:
        """Return the text, which may name a machine, unless the study is anonymous."""
        return OMITTED if self._anonymous else text

    def fail(self, reason: str, status: Status = "failed") -> None:
        """End the run: unfinished rows get this status and reason."""
        self.failure = reason = reason if status == "interrupted" else self._public(reason)
        if self.document is None or self.document.finished:
            return
        for result in self.document.results:
            if result.status == "ok":
                result.status, result.reason, result.hint = status, reason, self._hint
        self._save()

    def save(self, saved: Saved) -> None:
        """Store a message's content: first the log, then its report."""
        if self._loss_text:  # the replacement has sent its first document
            part = "the rest" if self.log else "everything"
            replacement = str(self.machine_study.hostname)
            note = f"{self._loss_text}: {part} was measured on another machine, {self._public(replacement)}"
            self.machine_study.notes.append(note)
            self._loss_text = ""
        self.log = saved.log
        self.document = self._read(saved.log)
        try:
            for name, content in saved.logs.items():
                self._logs.mkdir(parents=True, exist_ok=True)
                (self._logs / Path(name).name).write_bytes(content)
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            write_file_atomically(self._log_path, saved.log)
        except OSError as error:
            id = self.machine_study.study_id
            self.warning = f"cannot save the log of {id}: {error.strerror}; it cannot be resumed"
        self._save()

    def _read(self, log: bytes) -> StudyDocument:
        """Return the report of a log; raises BadInput if it is damaged."""
        document = report_of(decode_lines(log.splitlines(keepends=True), self._label or "the log"))
        document.id, document.study, document.machine_label = self.machine_study.study_id, self._study, self._label
        notes = self.machine_study.notes
        document.warnings += [note for note in notes if note not in document.warnings]
        for result in document.results:
            if result.status == "interrupted":
                result.hint = self._hint
            if result.log_path is not None and not self._anonymous:  # its original folder no longer exists
                result.log_path = str(self._logs / Path(result.log_path).name)
        return document

    def _save(self) -> None:
        assert self.document is not None
        if self._anonymous and not is_anonymized(self.document.host):
            self.document = anonymize(self.document)
        self.warning = self._store.try_to_save(self.document) or self.warning


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
            if not self._is_resumed and not self._has_document():
                self._checkpoints.remove(self._checkpoint.header.id)
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
        machine.starts += 1
        task = Task(
            header=msgspec.structs.replace(self._checkpoint.header, id=machine_study.study_id),
            study=machine.group.study(cluster_run.study),
            fingerprint=self._fingerprint,
            strict=cluster_run.strict,
            parity_check=cluster_run.parity_check,
            log=machine.log,
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
            case Saved():
                machine.save(message)
                self._reject_other_images(machine)
                if machine.warning is not None:
                    self._progress.on_warning(machine.warning)
                    machine.warning = None
            case Started():
                study = machine.machine_study
                study.hostname, study.versions = message.hostname, message.versions
                self._compare_versions(machine, message)
                self._save_checkpoint()
            case Finished():
                self._handle_finished(machine)
            case Rejected():
                self._handle_rejected(machine, message)
            case NodeLost():
                self._handle_lost(machine, message)
            case _:
                self._reports.report(machine.group.label, message)

    def _handle_finished(self, machine: MachineRun) -> None:
        if machine.document is None or not machine.document.finished:
            self._fail(machine, "it ended without its last document")
        elif machine.is_complete:
            machine.machine_study.finished = True
        else:
            machine.failure = "interrupted"
        self._save_checkpoint()

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
        """Fail a machine whose images differ from another's as soon as its first document arrives."""
        for other in self._machines.values():
            if other is machine or other.is_incomparable or machine.document is None or other.document is None:
                continue
            if machine.document.settings.data_sha256 != other.document.settings.data_sha256:
                machine.is_incomparable = True
                label = other.group.label
                self._fail(machine, f"its images differ from those of {label}; use the same --data for both")
                return

    def _handle_rejected(self, machine: MachineRun, rejected: Rejected) -> None:
        """Handle input that is invalid on any machine, or a log that a replacement cannot resume."""
        text = self._reports.label_text(machine.group.label, rejected.text)
        if rejected.exit_code == 130:
            machine.failure = "interrupted"
        elif rejected.exit_code == RequiredEngineMissing.exit_code:
            raise RequiredEngineMissing(text)
        elif machine.log is not None and machine.starts > 1:
            machine.reset()
            self._progress.on_warning(f"{text}; everything is measured again")
            self._restart(machine)
        elif rejected.exit_code == BadInput.exit_code and (self._is_resumed or not self._has_document()):
            raise BadInput(text)
        else:
            self._fail(machine, rejected.text)

    def _handle_lost(self, machine: MachineRun, lost: NodeLost) -> None:
        if self._is_interrupted:
            machine.fail("interrupted", "interrupted")
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

    def _has_document(self) -> bool:
        return any(machine.document is not None for machine in self._machines.values())

    def _save_checkpoint(self) -> None:
        with contextlib.suppress(OSError):  # saving each document reports it as well
            self._checkpoints.write(self._checkpoint)

    def _result(self) -> ClusterResult:
        machines = self._machines.values()
        for machine in machines:
            if not machine.has_ended:  # in time
                machine.fail("interrupted", "interrupted")
        is_complete = all(machine.machine_study.finished for machine in machines)
        if is_complete or not self._has_document():
            self._checkpoints.remove(self._checkpoint.header.id)
        results = [
            MachineResult(machine.group.label, None if machine.is_incomparable else machine.document, machine.failure)
            for machine in machines
        ]
        if not self._has_document():
            if self._is_interrupted:
                raise KeyboardInterrupt
            raise PolybenchError(results[0].failure or "the machine sent no document")
        unfinished_id = self._checkpoint.header.id if self._can_resume and not is_complete else None
        return ClusterResult(results, unfinished_id, self._is_interrupted)
