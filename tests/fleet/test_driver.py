"""The driver, with an executor that plays a script: machines that go away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from polybench.core.document.circumstances import Background, Published, Tool
from polybench.core.document.study import to_json
from polybench.core.errors import BadInput, PolybenchError
from polybench.core.machines import MachineGroup
from polybench.export.merge import render
from polybench.fleet import run as fleet_run
from polybench.fleet.executor import EXECUTORS, Event, Lost, Place, executor
from polybench.fleet.messages import (
    Finished,
    Hello,
    Message,
    Refused,
    Saved,
    Task,
    line_of,
    message_decoder,
    request_decoder,
)
from polybench.fleet.node import _SendingStore
from polybench.fleet.program import this_program
from polybench.fleet.run import resume_fleet, run_fleet
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.fleet_checkpoint import UnfinishedFleets
from polybench.measuring.resumable import Found, discard
from polybench.report.merge import merge
from polybench.report.saved_studies import Store
from tests.factories import measured, study
from tests.fleet.fleets import fleet
from tests.measuring.test_study import Listener

Script = list[Message | Lost]


class Scripted:
    """An Executor: each start of a group plays the next of its scripts."""

    def __init__(self, **scripts: list[Script]) -> None:
        self.scripts, self.started = scripts, []  # type: ignore[var-annotated]
        self.closed = False
        self._events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        return []

    def machines(self) -> list[Place]:
        return []

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        self.started.append((group.label, task.state, near))
        if not self.scripts[group.label]:
            raise BadInput("slurmctld may be down")
        script = self.scripts[group.label].pop(0)
        stand_ins = {
            id(DOCUMENT): document(task),
            id(LAST): document(task, finished=True),
            id(OTHER_IMAGES): document(task, data_sha256="other"),
        }
        self._events += [Event(group.label, stand_ins.get(id(one), one)) for one in script]

    def events(self, seconds: float) -> list[Event]:
        if any(event.message is CTRL_C for event in self._events):
            self._events = [
                event._replace(message=GONE) if event.message is CTRL_C else event for event in self._events
            ]
            raise KeyboardInterrupt
        events, self._events = self._events, []
        return events

    def stop(self) -> None: ...

    def close(self) -> None:
        self.closed = True


DOCUMENT = Lost("stands for a document with three replicates")
LAST = Lost("stands for the same, complete")
CTRL_C = Lost("stands for a signal, after which the machine is gone")
OTHER_IMAGES = Lost("stands for one that was measured with other images")


def document(task: Task, *, finished: bool = False, **settings: str) -> Saved:
    saved = study(measured("fake/cpu", 0.01))
    saved.settings = msgspec.structs.replace(saved.settings, **settings)
    saved.id, saved.finished = task.id, finished
    return Saved(to_json(saved), None if finished else b"state")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    def play(**scripts: list[Script]):  # type: ignore[no-untyped-def]
        runs = Scripted(**scripts)
        monkeypatch.setattr(fleet_run, "executor", lambda on, ship: runs)
        labels = list(scripts)
        asked = fleet(tmp_path, *labels)
        found = run_fleet(asked, listener := Listener(), store=Store(tmp_path / "r"))
        assert runs.closed
        return runs, found, listener

    return play


GONE = Lost("the node went away")
ALL: Script = [Hello(hostname="h"), LAST, Finished()]


def test_a_machine_is_given_up_after_three_and_its_rows_say_why(play) -> None:  # type: ignore[no-untyped-def]
    lost: Script = [Hello(hostname="h"), DOCUMENT, GONE]
    runs, found, _ = play(a=[lost, lost, lost], b=[ALL])
    assert [start for start in runs.started if start[0] == "a"] == [
        ("a", None, None), ("a", b"state", "h"), ("a", b"state", "h"),
    ]  # fmt: skip
    a, b = found.machines
    assert [(row.status, row.reason) for row in a.document.results] == [("failed", "the node went away")]
    assert {row.remedy for row in a.document.results} == {f"polybench resume {found.unfinished}"}
    assert [row.status for row in b.document.results] == ["ok"]


def test_a_machine_that_cannot_be_started_again_stops_no_other(play) -> None:  # type: ignore[no-untyped-def]
    _, found, listener = play(a=[[Hello(hostname="h"), DOCUMENT, GONE]], b=[ALL])
    a, b = found.machines
    assert [(row.status, row.reason) for row in a.document.results] == [("failed", "slurmctld may be down")]
    assert "a: slurmctld may be down" in listener.warnings
    assert [row.status for row in b.document.results] == ["ok"]


def test_what_began_with_other_versions_is_refused_or_said(  # type: ignore[no-untyped-def]
    play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = [Hello(hostname="h", versions={"torch": "2.0"}), LAST, Finished()]
    two = [Hello(hostname="k", versions={"torch": "2.1"}), LAST, Finished()]
    _, found, _ = play(a=[one], b=[[Lost("it is gone", again=False)]])
    store, runs = Store(tmp_path / "r"), Scripted(b=[two])
    monkeypatch.setattr(fleet_run, "executor", lambda on, ship: runs)
    kept = UnfinishedFleets(store.folder)
    checkpoint = kept.read(found.unfinished)
    kept.write(found.unfinished, msgspec.structs.replace(checkpoint, tool=Tool("0.0.1", None)))
    with pytest.raises(BadInput, match=r"polybench's version is .* now, and was 0\.0\.1"):
        resume_fleet(found.unfinished, Listener(), store=store)
    kept.write(found.unfinished, checkpoint)
    resume_fleet(found.unfinished, listener := Listener(), store=store)
    assert "torch is 2.1 on b, and 2.0 on a" in listener.warnings


def test_a_machine_that_ends_without_its_last_document_has_failed(play) -> None:  # type: ignore[no-untyped-def]
    _, found, _ = play(a=[[Hello(hostname="h"), DOCUMENT, Finished()]], b=[ALL])
    rows = [(row.status, row.reason) for row in found.machines[0].document.results]
    assert rows == [("failed", "it ended without its last document")]
    assert found.unfinished is not None


def test_what_a_nodes_disk_has_no_room_for_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "save", full)
    sent: list[Message] = []
    task = Task(id="1", created="2", study=fleet(tmp_path).study, program=this_program())
    came = study(measured("fake/cpu", 0.01))
    assert "No space left" in str(_SendingStore(tmp_path / "r", task, sent.append).try_to_save(came))
    assert sent == [Saved(to_json(came), None)]


def test_a_machine_of_which_nothing_came_is_in_the_table(play) -> None:  # type: ignore[no-untyped-def]
    _, found, _ = play(a=[ALL], b=[[Lost("no machine of the class is left", again=False)]])
    a, b = found.machines
    assert (b.document, b.failure) == (None, "no machine of the class is left")
    text = render(merge([a.document], {}, None, {b.label: b.failure}), "table")
    assert "b: failed: no machine of the class is left" in text
    assert any(line.split() == ["b", "failed"] for line in text.splitlines())


def test_another_machine_that_cannot_resume_measures_all_again(play) -> None:  # type: ignore[no-untyped-def]
    refused: Script = [Hello(hostname="k"), Refused("hostname is k now, and was h", 2)]
    again: Script = [Hello(hostname="k"), LAST, Finished()]
    runs, found, listener = play(a=[[Hello(hostname="h"), DOCUMENT, GONE], refused, again], b=[ALL])
    assert [state for label, state, _ in runs.started if label == "a"] == [None, b"state", None]
    assert any("all of it is measured again" in text for text in listener.warnings)
    notes = [text for text in found.machines[0].document.warnings if "was lost" in text]
    assert notes == [
        "h was lost, after 3 replicates (the node went away): all of it was measured by another one, k"
    ]


def test_machines_with_other_images_are_not_compared(play) -> None:  # type: ignore[no-untyped-def]
    _, found, _ = play(a=[ALL], b=[[Hello(hostname="k"), OTHER_IMAGES, Finished()]])
    a, b = found.machines
    assert a.document is not None
    assert (b.document, b.failure) == (None, "its images are not those of a; give both the same --data")


def test_images_are_compared_with_those_of_a_machine_that_failed_also_on_resume(  # type: ignore[no-untyped-def]
    play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Lost("it is gone", again=False)
    _, found, _ = play(
        a=[[Hello(hostname="h"), DOCUMENT, lost]], b=[[Hello(hostname="k"), OTHER_IMAGES, lost]]
    )
    says = "its images are not those of a; give both the same --data"
    assert [one.failure for one in found.machines] == ["it is gone", says]
    assert found.machines[1].document is None
    runs = Scripted(a=[ALL])
    monkeypatch.setattr(fleet_run, "executor", lambda on, ship: runs)
    found = resume_fleet(found.unfinished, Listener(), store=Store(tmp_path / "r"))
    assert [one.failure for one in found.machines] == [None, says]


def test_what_a_machine_lacks_or_has_otherwise_is_said(play) -> None:  # type: ignore[no-untyped-def]
    one = Hello(hostname="h", versions={"torch": "2.0", "jax": "0.5"})
    two = Hello(hostname="k", versions={"torch": "2.1", "jax": None})
    _, _, listener = play(a=[[one, LAST, Finished()]], b=[[two, LAST, Finished()]])
    assert listener.warnings == ["b: jax is not installed on k", "torch is 2.1 on b, and 2.0 on a"]


def test_what_ends_with_ctrl_c_before_it_can_say_so_is_interrupted(play) -> None:  # type: ignore[no-untyped-def]
    _, found, _ = play(a=[[Hello(hostname="h"), DOCUMENT, CTRL_C]], b=[ALL])
    a, b = found.machines
    assert found.interrupted
    assert [(row.status, row.reason) for row in a.document.results] == [("interrupted", "interrupted")]
    assert [row.status for row in b.document.results] == ["ok"]


def test_one_machine_of_which_nothing_came_is_an_error(play) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolybenchError, match="it is gone"):
        play(a=[[Lost("it is gone", again=False)]])


def test_what_is_no_machine_says_which_are() -> None:
    with pytest.raises(BadInput, match=f"known are: {', '.join(EXECUTORS)}"):
        executor("moon:42")
    with pytest.raises(BadInput, match="write --on local"):
        executor("local:42")


def test_what_is_sent_arrives_as_it_was(tmp_path: Path) -> None:
    asked = fleet(tmp_path, precision=("fp32", "bf16"), until={"accuracy": 0.5}, schedule=((10, 0.1),))
    task = Task(
        id="1", created="2", study=asked.study, program=this_program(), state=b"\0\xff", strict=True,
        background=Background("title", [Published("a", "time", (1.0, 2.0), "s", "a laptop", "a page")]),
    )  # fmt: skip
    assert request_decoder.decode(line_of(task)) == task
    saved = Saved(b'{"a": "\xc3\xa9"}', None, {"fake.log": b"\n\xff"})
    assert message_decoder.decode(line_of(saved)) == saved
    assert line_of(saved).count(b"\n") == 1


def test_a_fleet_that_runs_is_not_given_up(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lost = Lost("it is gone", again=False)
    _, found, _ = play(a=[[Hello(hostname="h"), DOCUMENT, lost]], b=[ALL])
    store = Store(tmp_path / "r")
    before = Unfinished(store.folder).ids()
    with (
        UnfinishedFleets(store.folder).claimed(found.unfinished),
        pytest.raises(BadInput, match="runs still"),
    ):
        discard(Found(found.unfinished, "fleet"), store)
    assert Unfinished(store.folder).ids() == before != []
    discard(Found(found.unfinished, "fleet"), store)
    assert Unfinished(store.folder).ids() == []
