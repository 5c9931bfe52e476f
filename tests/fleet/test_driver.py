"""The driver, with an executor that plays a script: machines that go away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from polybench.core.document.study import to_json
from polybench.core.errors import BadInput, PolybenchError
from polybench.core.machines import MachineGroup
from polybench.export.merge import render
from polybench.fleet import driver
from polybench.fleet.driver import run_fleet
from polybench.fleet.executor import EXECUTORS, Event, Lost, executor
from polybench.fleet.messages import Finished, Hello, Message, Refused, Saved, Task
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

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        self.started.append((group.label, task.state, near))
        script = self.scripts[group.label].pop(0)
        self._events += [Event(group.label, document(task) if one is DOCUMENT else one) for one in script]

    def events(self, seconds: float) -> list[Event]:
        events, self._events = self._events, []
        return events

    def stop(self) -> None: ...

    def close(self) -> None:
        self.closed = True


DOCUMENT = Lost("stands for a document of one finished process")


def document(task: Task) -> Saved:
    saved = study(measured("fake/cpu", 0.01))
    saved.id, saved.finished = task.id, False
    return Saved(to_json(saved), b"state")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    def play(**scripts: list[Script]):  # type: ignore[no-untyped-def]
        runs = Scripted(**scripts)
        monkeypatch.setattr(driver, "executor", lambda on: runs)
        labels = list(scripts)
        asked = fleet(tmp_path, *labels)
        found = run_fleet(asked, listener := Listener(), store=Store(tmp_path / "r"))
        assert runs.closed
        return runs, found, listener

    return play


GONE = Lost("the node went away")
ALL: Script = [Hello(hostname="h"), DOCUMENT, Finished()]


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


def test_a_machine_of_which_nothing_came_is_in_the_table(play) -> None:  # type: ignore[no-untyped-def]
    _, found, _ = play(a=[ALL], b=[[Lost("no machine of the class is left", again=False)]])
    a, b = found.machines
    assert (b.document, b.failure) == (None, "no machine of the class is left")
    text = render(merge([a.document], {}, None, {b.label: b.failure}), "table")
    assert "b: failed: no machine of the class is left" in text
    assert any(line.split() == ["b", "failed"] for line in text.splitlines())


def test_another_machine_that_cannot_resume_measures_all_again(play) -> None:  # type: ignore[no-untyped-def]
    refused: Script = [Hello(hostname="k"), Refused("hostname is k now, and was h", 2)]
    again: Script = [Hello(hostname="k"), DOCUMENT, Finished()]
    runs, found, listener = play(a=[[Hello(hostname="h"), DOCUMENT, GONE], refused, again], b=[ALL])
    assert [state for label, state, _ in runs.started if label == "a"] == [None, b"state", None]
    assert any("all of it is measured again" in text for text in listener.warnings)
    notes = [text for text in found.machines[0].document.warnings if "was lost" in text]
    assert notes == [
        "h was lost, after 3 replicates (the node went away): all of it was measured by another one, k"
    ]


def test_one_machine_of_which_nothing_came_is_an_error(play) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolybenchError, match="it is gone"):
        play(a=[[Lost("it is gone", again=False)]])


def test_what_is_no_machine_says_which_are() -> None:
    with pytest.raises(BadInput, match=f"known are: {', '.join(EXECUTORS)}"):
        executor("moon:42")
    with pytest.raises(BadInput, match="write --on local"):
        executor("local:42")
