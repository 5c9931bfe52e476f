"""What machines of a cluster say of themselves, with an executor that plays a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet import doctor
from polybench.fleet.executor import Event, Lost, Place
from polybench.fleet.messages import (
    Examined,
    Finished,
    Hello,
    Message,
    Refused,
    Task,
    line_of,
    message_decoder,
)

MACHINE = {
    "python": "3.12.1", "usable_threads": 4, "cores": 8, "available_memory_bytes": 1 << 30, "gpus": [],
    "other_cpu_percent": 120.0, "quiet": False,
}  # fmt: skip
TORCH = {"runs": True, "versions": {"torch": "2.9"}, "devices": ["cpu", "cuda"]}
MISSING = {"runs": False, "reason": "no", "remedy": "pip"}


def report(**engines: Any) -> dict[str, Any]:
    return {"polybench": "0.1.0", "machine": MACHINE, "engines": engines}


class Scripted:
    """An Executor whose machines say this; None is said after Ctrl-C only."""

    def __init__(self, **scripts: list[Message | Lost] | None) -> None:
        self.scripts, self.wrong = scripts, ""
        self.tasks: list[Task] = []
        self._events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        if self.wrong:
            raise BadInput(self.wrong)
        return ["nobody is asked who he is"]

    def machines(self) -> list[Place]:
        return [Place(MachineGroup(label=label), f"host-{label}") for label in self.scripts]

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        assert near == f"host-{group.label}"
        self.tasks.append(task)
        if self.scripts[group.label] == []:
            raise BadInput("the partition is closed")
        for message in self.scripts[group.label] or ():
            came = message if isinstance(message, Lost) else message_decoder.decode(line_of(message))
            self._events.append(Event(group.label, came))

    def events(self, seconds: float) -> list[Event]:
        if not self._events:
            raise KeyboardInterrupt
        events, self._events = self._events, []
        return events

    def stop(self) -> None: ...

    def close(self) -> None: ...


def run(monkeypatch: pytest.MonkeyPatch, runs: Scripted, *more: str) -> Result:
    monkeypatch.setattr(doctor, "executor", lambda on, ship: runs)
    return CliRunner().invoke(app, ["doctor", "--on", "auto", *more])


def test_every_machine_has_a_row_or_says_why_it_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[Message | Lost] = [
        Hello(hostname="host-a"), Examined(report(torch=TORCH, jax=MISSING)), Finished(),
    ]  # fmt: skip
    runs = Scripted(a=examined, b=[Refused("it has polybench 0.0.1", 2)], c=[Lost("it went away")], d=[])
    runs.wrong = "b: it has polybench 0.0.1"
    result = run(monkeypatch, runs, "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["on"], found["refused"], found["interrupted"]) == ("auto", runs.wrong, False)
    assert [(one["machine"], one["hostname"], one["refused"]) for one in found["machines"]] == [
        ("a", "host-a", None),
        ("b", None, "it has polybench 0.0.1"),
        ("c", None, "it went away"),
        ("d", None, "the partition is closed"),
    ]
    assert found["machines"][0]["report"] == report(torch=TORCH, jax=MISSING)
    assert all(task.examine for task in runs.tasks)

    text = run(monkeypatch, runs).stdout
    cells = [part.strip() for part in text.splitlines()[2].split("  ") if part.strip()]
    assert cells == [
        *("a", "0.1.0", "3.12.1", "4 of 8 cores", "1.00 GiB", "none", "120 % of a core, BUSY"),
        *("2.9 cpu,cuda", "missing"),
    ]
    assert "b: it has polybench 0.0.1" in text
    assert "a study of all is refused: b: it has polybench 0.0.1" in text


def test_where_no_engine_runs_it_ends_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = report(jax=MISSING, reference={"runs": True, "versions": {}, "devices": ["cpu"]})
    result = run(monkeypatch, Scripted(a=[Examined(nothing), Finished()]))
    assert result.exit_code == 4
    assert "nobody is asked who he is" in result.stdout


def test_ctrl_c_prints_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        monkeypatch, Scripted(a=[Examined(report(torch=TORCH)), Finished()], b=None), "--format", "json"
    )
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"]
    assert [one["refused"] for one in found["machines"]] == [None, "interrupted before it answered"]
