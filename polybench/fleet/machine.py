"""One machine group while it runs: what has come from its machine, stored as soon as it is here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.core.document.result import Status
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.core.units import plural
from polybench.fleet.executor import Lost
from polybench.fleet.messages import Hello, Saved
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.fleet_checkpoint import Member
from polybench.report.anonymous import UNKNOWN_HOST, anonymous, is_anonymous, nameless
from polybench.report.document import study_toml
from polybench.report.saved_studies import Store

MOST_STARTS = 3
"""Of one group: whatever loses three machines will lose a fourth."""


class Machine:
    """A group, and its study as far as it is known here.

    Attributes:
        document: the last one that came.
        failure: why there will be no more of it.
        starts: how often its node program was started.
        apart: whether it cannot be compared with the others.
        warning: that something could not be saved, until somebody has read it.
    """

    def __init__(
        self,
        group: MachineGroup,
        member: Member,
        study: str,
        store: Store | None,
        *,
        named: bool,
        without_names: bool = False,
    ) -> None:
        self.group, self.member = group, member
        self.document: StudyDocument | None = None
        self.failure: str | None = None
        self.starts = 0
        self.apart = False
        self.warning: str | None = None
        self._study, self._store, self._named, self._anonymous = study, store, named, without_names
        self._unfinished = None if store is None else Unfinished(store.folder)
        self._state: bytes | None = None
        self._lost: str | None = None

    def restore(self) -> None:
        """Take up what an earlier driver has stored."""
        assert self._store is not None
        assert self._unfinished is not None
        id = self.member.study_id
        try:
            self._state = self._unfinished.file(id).read_bytes()
        except FileNotFoundError:
            self._state = None
        try:
            self.document = document = self._store.load(id)
        except BadInput:  # nothing of it came
            self.member.ended = False
            return
        if self.document.finished and self.complete:  # the driver died before it was told so
            self.member.ended = True
            self._unfinished.drop(id)
        if self._anonymous and not is_anonymous(document.host):  # it was begun otherwise
            self._save()

    @property
    def state(self) -> bytes | None:
        """What is needed to go on with it."""
        return self._state

    @property
    def complete(self) -> bool:
        """Whether its study has come to its end, and not by Ctrl-C."""
        found = self.document
        return found is not None and all(result.status != "interrupted" for result in found.results)

    def forget(self) -> None:
        """No machine can go on with what was begun: all is measured again."""
        self._state = None
        if self._unfinished is not None:
            self._unfinished.file(self.member.study_id).unlink(missing_ok=True)

    def begun(self, hello: Hello) -> None:
        """A machine began, or went on."""
        self.member.hostname, self.member.versions = hello.hostname, hello.versions

    def lost(self, lost: Lost) -> None:
        """Its machine went away; what it was doing is done again, if another one begins."""
        results = self.document.results if self.document else []
        done = max((len(result.steps) for result in results), default=0)
        after = f", after {plural(done, 'replicate')}" if done else ""
        host = self._host() if self.member.hostname else "its machine"
        self._lost = f"{host} was lost{after} ({self._told(lost.reason)})"

    def _note(self) -> str:
        """What became of a machine that was lost, now that another one has sent something."""
        what = "the rest" if self._state else "all of it"
        return f"{self._lost}: {what} was measured by another one, {self._host()}"

    def _host(self) -> str | None:
        return UNKNOWN_HOST if self._anonymous else self.member.hostname

    def _told(self, text: str) -> str:
        """What others may see of it."""
        return nameless(text, self.member.hostname or "") if self._anonymous else text

    def give_up(self, reason: str, remedy: str | None, status: Status = "failed") -> None:
        """Nothing more comes: rows that were not finished say so."""
        self.failure = reason = self._told(reason)
        if self.document is None or self.document.finished:
            return
        for result in self.document.results:
            if result.status == "ok":
                result.status, result.reason, result.remedy = status, reason, remedy
        self._save()

    def save(self, saved: Saved, remedy: str | None) -> None:
        """Store what came: first what is needed to go on, then the document.

        Args:
            saved: what came.
            remedy: what goes on with cells that were interrupted.
        """
        id = self.member.study_id
        if self._lost is not None:
            self.member.notes.append(self._note())
            self._lost = None
        if saved.state is not None:
            self._state = saved.state
        self.document = document = from_json(saved.document)
        document.study, document.machine = self._study, self.group.label if self._named else None
        notes = [self._told(note) for note in self.member.notes]
        document.warnings += [note for note in notes if note not in document.warnings]
        for result in document.results:
            if result.status == "interrupted":
                result.remedy = remedy
        if self._store is not None and self._unfinished is not None:
            try:
                self._keep_logs(document, saved.logs, self._store.folder / "logs" / id)
                if saved.state is not None:
                    self._unfinished.write_bytes(id, saved.state)
            except OSError as error:
                self.warning = f"cannot keep what {id} needs to be resumed: {error.strerror}"
        self._save()
        if self._unfinished is not None and document.finished and saved.state is None:
            self._unfinished.drop(id)

    def _keep_logs(self, document: StudyDocument, logs: dict[str, bytes], folder: Path) -> None:
        """Those of failed workers came from a folder that is gone."""
        for name, content in logs.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / Path(name).name).write_bytes(content)
        for result in document.results:
            if result.log is not None:
                result.log = str(folder / Path(result.log).name)

    def _save(self) -> None:
        if self._anonymous and self.document is not None:
            self.document = anonymous(self.document, self._store.folder if self._store else None)
        if self._store is not None and self.document is not None:
            self.warning = self._store.try_to_save(self.document) or self.warning


def study_of(group: MachineGroup, study: msgspec.Struct) -> str:
    """The study of a group as its document has it."""
    return study_toml(group.study(study))  # type: ignore[arg-type]
