"""Driver of a study on a cluster: starts each machine group, stores its results, replaces lost machines."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.cluster.executor import Event, Executor, NodeLost
from polybench.cluster.messages import (
    Finished,
    Message,
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
from polybench.cluster.progress_aggregator import ProgressAggregator
from polybench.errors import BadInput, PolybenchError, RequiredEngineMissing
from polybench.results.document import study_toml
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, MachineStudy
from polybench.runner.progress import Progress
from polybench.schema.options import MachineGroup, Study
from polybench.schema.result import Status
from polybench.schema.study import StudyDocument, from_json
from polybench.schema.units import plural
from polybench.storage.anonymize import UNKNOWN_HOST, anonymize, is_anonymized, scrub_text
from polybench.storage.store import Store

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


def _with_devices(group: MachineGroup, study: Study) -> MachineGroup:
    """Return the group with the devices that it measures, which an executor needs."""
    return msgspec.structs.replace(group, devices=group.study(study).devices)


class Driver:
    """A running study on a cluster."""

    def __init__(
        self,
        checkpoint: ClusterCheckpoint,
        executor: Executor,
        progress: Progress,
        store: Store | None,
        *,
        resumed: bool,
    ) -> None:
        self._checkpoint, self._cluster_run, self._executor = checkpoint, checkpoint.run, executor
        self._checkpoints = None if store is None else CheckpointStore(store.folder)
        self._is_resumed, self._is_interrupted = resumed, False
        self._resume_hint = None if store is None else f"polybench resume {checkpoint.header.id}"
        has_several_machines = len(self._cluster_run.groups) > 1
        self._progress = ProgressAggregator(progress, has_several_machines=has_several_machines)
        self._machines = {
            group.label: MachineRun(
                group,
                machine_study,
                group_study_toml(group, self._cluster_run.study),
                store,
                is_labelled=has_several_machines,
                anonymous=self._cluster_run.anonymous,
            )
            for group, machine_study in zip(self._cluster_run.groups, checkpoint.machine_studies, strict=True)
        }
        self._fingerprint = current_fingerprint()
        self._pending_events: deque[Event] = deque()
        self._versions = {one.label: one.versions for one in checkpoint.machine_studies if one.versions}

    def run(self) -> ClusterResult:
        """Start all unfinished groups and wait until they end."""
        if self._is_resumed:
            for machine in self._machines.values():
                machine.restore()
                self._reject_other_images(machine)  # the machines before it are already restored
        self._progress.on_stage(f"checking the machines of {self._cluster_run.on}")
        for text in self._executor.check(
            [_with_devices(one.group, self._cluster_run.study) for one in self._unfinished_machines()]
        ):
            self._progress.on_warning(text)
        self._save_checkpoint()
        try:
            for machine in self._unfinished_machines():
                self._start(machine)
            self._wait_for_all()
        except PolybenchError:
            if not self._is_resumed and not self._has_document():
                self._delete_checkpoint()
            raise
        return self._result()

    def _wait_for_all(self) -> None:
        deadline = None
        while self._unfinished_machines():
            if deadline is not None and time.monotonic() > deadline:
                return
            try:
                seconds = _WAIT_SECONDS if deadline is None else max(0.1, deadline - time.monotonic())
                self._pending_events += self._executor.events(seconds)
                while self._pending_events:
                    self._handle(self._pending_events.popleft())
            except KeyboardInterrupt:
                self._is_interrupted, deadline = True, time.monotonic() + _GRACE_SECONDS
                self._progress.on_stage("ending the studies on all machines")
                self._executor.stop()

    def _unfinished_machines(self) -> list[MachineRun]:
        """Return the groups whose studies have not ended."""
        return [one for one in self._machines.values() if not one.machine_study.finished and one.failure is None]

    def _start(self, machine: MachineRun) -> None:
        cluster_run, machine_study = self._cluster_run, machine.machine_study
        machine.starts += 1
        task = Task(
            id=machine_study.study_id,
            created=self._checkpoint.header.created,
            study=machine.group.study(cluster_run.study),
            fingerprint=self._fingerprint,
            argv=list(cluster_run.argv),
            study_file=cluster_run.study_file,
            strict=cluster_run.strict,
            parity_check=cluster_run.parity_check,
            anonymous=cluster_run.anonymous,
            checkpoint=machine.checkpoint,
        )
        self._executor.start(_with_devices(machine.group, cluster_run.study), task, machine_study.hostname)

    def _restart(self, machine: MachineRun) -> None:
        """Start the group again; if the executor rejects it, the other groups continue."""
        try:
            self._start(machine)
        except BadInput as error:
            self._fail(machine, str(error))

    def _handle(self, event: Event) -> None:
        machine = self._machines[event.label]
        if machine.machine_study.finished or machine.failure is not None:
            return  # late message of a machine that already failed
        match event.message:
            case Saved() as saved:
                machine.save(saved, self._resume_hint)
                self._reject_other_images(machine)
                if machine.warning is not None:
                    self._progress.on_warning(machine.warning)
                    machine.warning = None
            case Started() as started:
                machine.mark_started(started)
                self._compare_versions(event.label, started)
                self._save_checkpoint()
            case Finished():
                self._handle_finished(machine)
            case Rejected() as rejected:
                self._handle_rejected(machine, rejected)
            case NodeLost() as lost:
                self._handle_lost(machine, lost)
            case _ as message:
                self._report(event.label, message)

    def _handle_finished(self, machine: MachineRun) -> None:
        if machine.document is None or not machine.document.finished:
            self._fail(machine, "it ended without its last document")
        elif machine.is_complete:
            machine.machine_study.finished = True
        else:
            machine.failure = "interrupted"
        self._save_checkpoint()

    def _report(self, label: str, message: Message) -> None:
        match message:
            case StageChanged(text):
                self._progress.machine(label).on_stage(text)
            case TimeLeft(seconds):
                self._progress.machine(label).on_time_left(seconds)
            case ProgressUpdate(configurations):
                self._progress.machine(label).on_configurations(configurations)
            case WarningRaised(text):
                self._progress.machine(label).on_warning(text)

    def _compare_versions(self, label: str, started: Started) -> None:
        """Warn about missing packages, and about versions that differ from those on the first machine."""
        first_label, first_versions = next(iter(self._versions.items()), (label, started.versions))
        self._versions[label] = started.versions
        missing = [name for name, version in started.versions.items() if version is None]
        if missing:
            self._progress.machine(label).on_warning(f"{', '.join(missing)} is not installed on {started.hostname}")
        for name, version in started.versions.items():
            other_version = first_versions.get(name)
            if other_version != version and None not in (other_version, version):
                self._progress.on_warning(f"{name} is {version} on {label}, but {other_version} on {first_label}")

    def _reject_other_images(self, machine: MachineRun) -> None:
        """Fail a machine whose images differ from another's as soon as its first document arrives."""
        if machine.document is None:
            return
        for other in self._machines.values():
            if other is machine or other.document is None or other.is_incomparable:
                continue
            if machine.document.settings.data_sha256 != other.document.settings.data_sha256:
                machine.is_incomparable = True
                label = other.group.label
                self._fail(machine, f"its images differ from those of {label}; use the same --data for both")
                return

    def _handle_rejected(self, machine: MachineRun, rejected: Rejected) -> None:
        """Handle input that is invalid on any machine, or a checkpoint that a replacement cannot resume."""
        if rejected.exit_code == 130:
            machine.failure = "interrupted"
            return
        prefix = f"{machine.group.label}: " if len(self._machines) > 1 else ""
        if rejected.exit_code == RequiredEngineMissing.exit_code:
            raise RequiredEngineMissing(f"{prefix}{rejected.text}")
        if machine.checkpoint is not None and machine.starts > 1:
            machine.reset()
            self._progress.on_warning(f"{prefix}{rejected.text}; everything is measured again")
            self._restart(machine)
        elif rejected.exit_code == BadInput.exit_code and (self._is_resumed or not self._has_document()):
            raise BadInput(f"{prefix}{rejected.text}")
        else:
            self._fail(machine, rejected.text)

    def _handle_lost(self, machine: MachineRun, lost: NodeLost) -> None:
        if self._is_interrupted:
            machine.fail("interrupted", self._resume_hint, "interrupted")
            return
        machine.mark_lost(lost)
        if lost.can_retry and machine.starts < MAX_STARTS:
            self._progress.machine(machine.group.label).on_warning(f"{lost.reason}; another machine takes over")
            self._restart(machine)
        else:
            self._fail(machine, lost.reason)

    def _fail(self, machine: MachineRun, reason: str) -> None:
        machine.fail(reason, self._resume_hint)
        self._progress.machine(machine.group.label).on_warning(reason)

    def _has_document(self) -> bool:
        return any(one.document is not None for one in self._machines.values())

    def _save_checkpoint(self) -> None:
        if self._checkpoints is not None:
            with contextlib.suppress(OSError):  # saving each document reports it as well
                self._checkpoints.write(self._checkpoint)

    def _delete_checkpoint(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.remove(self._checkpoint.header.id)

    def _result(self) -> ClusterResult:
        for machine in self._unfinished_machines():  # did not end in time
            machine.fail("interrupted", self._resume_hint, "interrupted")
        machines = [
            MachineResult(
                label,
                None if one.is_incomparable else one.document,
                one.failure,
            )
            for label, one in self._machines.items()
        ]
        is_complete = all(one.machine_study.finished for one in self._machines.values())
        if is_complete or not self._has_document():
            self._delete_checkpoint()
        if not self._has_document():
            if self._is_interrupted:
                raise KeyboardInterrupt
            raise PolybenchError(machines[0].failure or "the machine sent no document")
        return ClusterResult(
            machines,
            None if is_complete or self._checkpoints is None else self._checkpoint.header.id,
            self._is_interrupted,
        )


MAX_STARTS = 3
"""Maximum number of starts of a group: what loses three machines would lose a fourth."""


class MachineRun:
    """A machine group and the known state of its study.

    Attributes:
        document: last received document.
        failure: reason why the group failed.
        starts: number of starts of its node program.
        is_incomparable: True if its results are not comparable with the other machines'.
        warning: an unreported problem with saving, or None.
    """

    def __init__(
        self,
        group: MachineGroup,
        machine_study: MachineStudy,
        study: str,
        store: Store | None,
        *,
        is_labelled: bool,
        anonymous: bool = False,
    ) -> None:
        self.group, self.machine_study = group, machine_study
        self.document: StudyDocument | None = None
        self.failure: str | None = None
        self.starts = 0
        self.is_incomparable = False
        self.warning: str | None = None
        self._study, self._store, self._is_labelled, self._anonymous = study, store, is_labelled, anonymous
        self._checkpoints = None if store is None else CheckpointStore(store.folder)
        self._checkpoint: bytes | None = None
        self._loss_text: str | None = None

    def restore(self) -> None:
        """Restore what an earlier driver stored."""
        assert self._store is not None
        assert self._checkpoints is not None
        id = self.machine_study.study_id
        try:
            self._checkpoint = self._checkpoints.path(id).read_bytes()
        except FileNotFoundError:
            self._checkpoint = None
        try:
            self.document = document = self._store.load(id)
        except BadInput:  # no document arrived
            self.machine_study.finished = False
            return
        if self.document.finished and self.is_complete:  # the driver was killed before it received Finished
            self.machine_study.finished = True
            self._checkpoints.remove(id)
        if self._anonymous and not is_anonymized(document.host):  # it was started without --anonymous
            self._save()

    @property
    def checkpoint(self) -> bytes | None:
        """Checkpoint for resuming the study."""
        return self._checkpoint

    @property
    def is_complete(self) -> bool:
        """True if its study has ended without an interruption."""
        document = self.document
        return document is not None and all(result.status != "interrupted" for result in document.results)

    def reset(self) -> None:
        """Delete the checkpoint: no machine can resume it, so everything is measured again."""
        self._checkpoint = None
        if self._checkpoints is not None:
            self._checkpoints.path(self.machine_study.study_id).unlink(missing_ok=True)

    def mark_started(self, started: Started) -> None:
        """Store the host and the versions of the machine that started or resumed the study."""
        self.machine_study.hostname, self.machine_study.versions = started.hostname, started.versions

    def mark_lost(self, lost: NodeLost) -> None:
        """Note that its machine was lost; a replacement repeats the unfinished process run."""
        results = self.document.results if self.document else []
        process_runs = max((len(result.nested_step_times) for result in results), default=0)
        after = f", after {plural(process_runs, 'process run')}" if process_runs else ""
        host = self._host() if self.machine_study.hostname else "its machine"
        self._loss_text = f"{host} was lost{after} ({self._anonymize(lost.reason)})"

    def _takeover_note(self) -> str:
        """Return a note on the lost machine and its replacement, which has sent its first document."""
        part = "the rest" if self._checkpoint else "everything"
        return f"{self._loss_text}: {part} was measured on another machine, {self._host()}"

    def _host(self) -> str | None:
        return UNKNOWN_HOST if self._anonymous else self.machine_study.hostname

    def _anonymize(self, text: str) -> str:
        """Return the text without private names, if the study is anonymous."""
        return scrub_text(text, self.machine_study.hostname or "") if self._anonymous else text

    def fail(self, reason: str, hint: str | None, status: Status = "failed") -> None:
        """End the run: unfinished rows get this status and reason."""
        self.failure = reason = self._anonymize(reason)
        if self.document is None or self.document.finished:
            return
        for result in self.document.results:
            if result.status == "ok":
                result.status, result.reason, result.hint = status, reason, hint
        self._save()

    def save(self, saved: Saved, hint: str | None) -> None:
        """Store a message's content: first the checkpoint, then the document.

        Args:
            saved: the message.
            hint: how to resume interrupted configurations.
        """
        id = self.machine_study.study_id
        if self._loss_text is not None:
            self.machine_study.notes.append(self._takeover_note())
            self._loss_text = None
        if saved.checkpoint is not None:
            self._checkpoint = saved.checkpoint
        self.document = document = from_json(saved.document)
        document.study, document.machine_label = self._study, self.group.label if self._is_labelled else None
        notes = [self._anonymize(note) for note in self.machine_study.notes]
        document.warnings += [note for note in notes if note not in document.warnings]
        for result in document.results:
            if result.status == "interrupted":
                result.hint = hint
        if self._store is not None and self._checkpoints is not None:
            try:
                self._save_logs(document, saved.logs, self._store.folder / "logs" / id)
                if saved.checkpoint is not None:
                    self._checkpoints.write_bytes(id, saved.checkpoint)
            except OSError as error:
                self.warning = f"cannot save the checkpoint of {id}: {error.strerror}; it cannot be resumed"
        self._save()
        if self._checkpoints is not None and document.finished and saved.checkpoint is None:
            self._checkpoints.remove(id)

    def _save_logs(self, document: StudyDocument, logs: dict[str, bytes], folder: Path) -> None:
        """Save the logs of failed workers, whose original folder no longer exists."""
        for name, content in logs.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / Path(name).name).write_bytes(content)
        for result in document.results:
            if result.log_path is not None:
                result.log_path = str(folder / Path(result.log_path).name)

    def _save(self) -> None:
        if self._anonymous and self.document is not None:
            self.document = anonymize(self.document, self._store.folder if self._store else None)
        if self._store is not None and self.document is not None:
            self.warning = self._store.try_to_save(self.document) or self.warning


def group_study_toml(group: MachineGroup, study: msgspec.Struct) -> str:
    """Return a group's study as TOML, as stored in its document."""
    return study_toml(group.study(study))  # type: ignore[arg-type]
