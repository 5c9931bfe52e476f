"""Run of one machine group: its results, stored as soon as they arrive."""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.cluster.executor import NodeLost
from polybench.cluster.messages import Saved, Started
from polybench.errors import BadInput
from polybench.results.document import study_toml
from polybench.runner.cluster_checkpoint import MachineStudy
from polybench.runner.study_checkpoint import StudyCheckpointStore
from polybench.schema.options import MachineGroup
from polybench.schema.result import Status
from polybench.schema.study import StudyDocument, from_json
from polybench.schema.units import plural
from polybench.storage.anonymize import UNKNOWN_HOST, anonymize, is_anonymized, scrub_text
from polybench.storage.store import Store

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
        self._checkpoints = None if store is None else StudyCheckpointStore(store.folder)
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
