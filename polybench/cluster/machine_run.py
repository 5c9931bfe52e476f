"""A machine group of a cluster run, and the log of its study."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from polybench.cluster.messages import Lines, NodeLost
from polybench.errors import BadInput
from polybench.log import (
    AnyEvent,
    BlockTimed,
    DamagedLog,
    Failed,
    Header,
    Log,
    ProcessEnded,
    SettingsChosen,
    StudyEnded,
    Warned,
)
from polybench.results.document import report_of, study_toml
from polybench.runner.checkpoint import ClusterCheckpoint, MachineStudy
from polybench.runner.resume import with_remedy
from polybench.schema.options import MachineGroup
from polybench.schema.study import StudyDocument
from polybench.schema.units import plural
from polybench.storage.anonymize import OMITTED
from polybench.storage.anonymous_log import anonymous_event
from polybench.storage.store import Store


class MachineRun:
    """A machine group, and the log of its study, which gets each line as soon as it arrives.

    Attributes:
        is_finished: True if its study has ended without an interruption.
        failure: reason why the group failed.
        problem: reason why the file of its log lacks lines.
        starts: number of starts of its node program.
        is_resuming: True if its node program has started with a log.
        is_incomparable: True if its images differ from the other machines'.
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
        self.is_finished = self.is_resuming = self.is_incomparable = False
        self.failure: str | None = None
        self.problem: str | None = None
        self.starts = 0
        self._anonymous = cluster.header.anonymous
        self._study = study_toml(group.study(cluster.run.study))
        self._hint = f"polybench resume {cluster.header.id}" if can_resume else None
        self._store, self._path = store, store.log_path(machine_study.study_id)
        self._worker_logs = store.folder / "logs" / machine_study.study_id
        self._log: Log | None = None
        self._open_log = contextlib.ExitStack()
        self._loss = ""
        self._notes: list[Warned] = []
        """Warnings that the log gets before its end: until then, the node program numbers the lines."""

    def restore(self) -> None:
        """Open the log that an earlier driver has written, if any; raises BadInput if this is impossible."""
        if self._path.exists() and self._path.stat().st_size == 0:  # killed before it wrote the header
            self._path.unlink()
        elif self._path.exists():
            try:
                self._log = self._open_log.enter_context(Log.resume(self._path, self._edit))
            except DamagedLog as error:
                raise with_remedy(error, self._path) from error
            self._log.release()
            self.is_finished = self.outcome == "finished"

    @property
    def events(self) -> list[AnyEvent]:
        """The log so far."""
        return self._log.events if self._log else []

    @property
    def text(self) -> bytes:
        """All lines of the log."""
        return self._log.text if self._log else b""

    @property
    def outcome(self) -> str | None:
        """The outcome of its study; None if its log has no end."""
        last = self.events[-1] if self.events else None
        return last.outcome if isinstance(last, StudyEnded) else None

    @property
    def data_sha256(self) -> str | None:
        """Hash of its images; None before its settings are known."""
        return next((one.settings.data_sha256 for one in self.events if isinstance(one, SettingsChosen)), None)

    @property
    def has_ended(self) -> bool:
        """True if its study has finished or failed."""
        return self.is_finished or self.failure is not None

    @property
    def has_measured(self) -> bool:
        """True if its log has a measurement, or is complete."""
        return self.outcome == "finished" or any(isinstance(event, BlockTimed) for event in self.events)

    def report(self) -> StudyDocument | None:
        """Return the report of its log; None if there is nothing to report, or to compare with other machines."""
        if self.is_incomparable or self.data_sha256 is None:
            return None
        try:
            document = report_of(self.events)
        except BadInput as error:
            self.failure = str(error)
            return None
        document.warnings += [self.problem] if self.problem else []
        return document

    def add(self, lines: Lines) -> None:
        """Append the lines that the log lacks; raises ValueError if lines before them did not arrive."""
        new = lines.after(len(self.events))
        if not new:
            return
        if self._loss:  # a replacement measures
            part = "the rest" if self._log else "everything"
            replacement = self._public(str(self.machine_study.hostname))
            self._notes.append(Warned(text=f"{self._loss}: {part} was measured on another machine, {replacement}"))
            self._loss = ""
        if self._log is None:
            self._log = Log(self._path, edit=self._edit)
            self._open_log.callback(self._log.close)
        for event in new:
            if isinstance(event, StudyEnded):
                self._add_notes(self._log)
            self._log.add(event)
        self.problem = self._log.problem

    def _edit(self, header: Header, event: AnyEvent) -> AnyEvent | None:
        """Return what the log gets: paths of this machine, and the command that resumes the whole run."""
        if isinstance(event, Header):
            event = msgspec.structs.replace(event, study=self._study)
        elif isinstance(event, Failed) and event.log_path is not None:  # its original folder no longer exists
            event = msgspec.structs.replace(event, log_path=str(self._worker_logs / Path(event.log_path).name))
        elif isinstance(event, StudyEnded) and event.outcome == "interrupted":
            event = msgspec.structs.replace(event, hint=self._hint)
        return anonymous_event(header, event)

    def _add_notes(self, log: Log) -> None:
        for note in self._notes:
            log.add(note)
        self._notes = []

    def reset(self, note: str = "") -> None:
        """Delete the log, which no machine can resume: everything is measured again; the next log gets the note."""
        if note:
            self._notes.append(Warned(text=note, names=True))
        if self._log is not None:
            self._log.delete()
        self._open_log.close()
        self._log = None

    def mark_lost(self, lost: NodeLost) -> None:
        """Note that its machine was lost; a replacement repeats the unfinished process run."""
        process_runs = sum(isinstance(event, ProcessEnded) for event in self.events)
        after = f", after {plural(process_runs, 'process run')}" if process_runs else ""
        self._loss = f"{self._public(self.machine_study.hostname or 'its machine')} was lost{after}"
        self._loss += f" ({self._public(lost.reason)})"

    def _public(self, text: str) -> str:
        """Return the text, which may name a machine, unless the study is anonymous."""
        return OMITTED if self._anonymous else text

    def finish(self, worker_logs: Mapping[str, bytes]) -> None:
        """Save the logs of failed workers after the end of the node program, and close the study's log."""
        with contextlib.suppress(OSError):
            for name, content in worker_logs.items():
                self._worker_logs.mkdir(parents=True, exist_ok=True)
                (self._worker_logs / Path(name).name).write_bytes(content)
        match self.outcome:
            case "finished":
                self.is_finished = True
                self.close()
            case "interrupted":
                self.interrupt()
            case _:
                self.fail("it ended without the end of its log")

    def fail(self, reason: str) -> None:
        """End the study: unfinished rows fail for this reason."""
        self.failure = self._public(reason)
        self._end(self.failure)
        self.close()

    def interrupt(self) -> None:
        """End the study as Ctrl-C does."""
        self.failure = "interrupted"
        if self.outcome is None:
            self._end()
        self.close()

    def _end(self, failure: str | None = None) -> None:
        """Add the end to a log that has something to report, unless it has it."""
        if self._log is None or self.data_sha256 is None or self.outcome == "finished":
            return
        polybench = self._log.header.polybench
        end = StudyEnded(outcome="interrupted", polybench=polybench, failure=failure, hint=self._hint)
        if end != self.events[-1]:
            self._add_notes(self._log)
            self._log.add(end)

    def close(self) -> None:
        """Close the log; if its file lacks lines, copy it."""
        self.problem = self._log.save_copy() if self._log else None
        if self.problem is not None:
            self._store.failed_saves[self.machine_study.study_id] = self.problem
        self._open_log.close()
