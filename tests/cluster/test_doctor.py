"""Diagnosis of a cluster's machines, with a scripted executor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.cluster import doctor
from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import (
    Diagnosed,
    Finished,
    Message,
    NodeLost,
    Rejected,
    Started,
    Task,
    encode_line,
    message_decoder,
)
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup

MACHINE = {
    "python": "3.12.1", "usable_threads": 4, "cores": 8, "available_memory_bytes": 1 << 30, "gpus": [],
    "other_cpu_percent": 120.0, "idle": False,
}  # fmt: skip
TORCH = {"runs": True, "versions": {"torch": "2.9"}, "devices": ["cpu", "cuda"]}
MISSING = {"runs": False, "reason": "no", "hint": "pip"}


def report(**engines: Any) -> dict[str, Any]:
    return {"polybench": "0.1.0", "machine": MACHINE, "engines": engines}


class ScriptedExecutor:
    """An Executor whose machines send these messages; None stands for a machine that never answers."""

    def __init__(self, **scripts: list[Message] | None) -> None:
        self.scripts, self.error = scripts, ""
        self.tasks: list[Task] = []
        self._events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        if self.error:
            raise BadInput(self.error)
        return ["Ray has no authentication"]

    def nodes(self) -> list[Node]:
        return [Node(MachineGroup(label=label), f"host-{label}") for label in self.scripts]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        assert preferred_host == f"host-{group.label}"
        self.tasks.append(task)
        if self.scripts[group.label] == []:
            raise BadInput("the partition is closed")
        for message in self.scripts[group.label] or ():
            received = message if isinstance(message, NodeLost) else message_decoder.decode(encode_line(message))
            self._events.append(Event(group.label, received))

    def events(self, seconds: float) -> list[Event]:
        if not self._events:
            raise KeyboardInterrupt
        events, self._events = self._events, []
        return events

    def stop(self) -> None: ...

    def close(self) -> None: ...


def run(monkeypatch: pytest.MonkeyPatch, executor: ScriptedExecutor, *more: str) -> Result:
    monkeypatch.setattr(doctor, "make_executor", lambda target, upload: executor)
    return CliRunner().invoke(app, ["doctor", "--on", "auto", *more])


def test_every_machine_has_a_row_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Message] = [
        Started(hostname="host-a"), Diagnosed(report(torch=TORCH, jax=MISSING)), Finished(),
    ]  # fmt: skip
    executor = ScriptedExecutor(
        a=messages, b=[Rejected("it has polybench 0.0.1", 2)], c=[NodeLost("its machine is gone")], d=[]
    )
    executor.error = "b: it has polybench 0.0.1"
    result = run(monkeypatch, executor, "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["target"], found["error"], found["interrupted"]) == ("auto", executor.error, False)
    assert [(one["machine"], one["hostname"], one["error"]) for one in found["machines"]] == [
        ("a", "host-a", None),
        ("b", None, "it has polybench 0.0.1"),
        ("c", None, "its machine is gone"),
        ("d", None, "the partition is closed"),
    ]
    assert found["machines"][0]["report"] == report(torch=TORCH, jax=MISSING)
    assert all(task.diagnose for task in executor.tasks)

    text = run(monkeypatch, executor).stdout
    configurations = [part.strip() for part in text.splitlines()[2].split("  ") if part.strip()]
    assert configurations == [
        *("a", "0.1.0", "3.12.1", "4 of 8 cores", "1.00 GiB", "none", "120 % of a core, BUSY"),
        *("2.9 cpu,cuda", "missing"),
    ]
    assert "b: it has polybench 0.0.1" in text
    assert "a study on all of these machines would be rejected: b: it has polybench 0.0.1" in text


def test_exit_code_is_4_if_no_engine_works(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = report(jax=MISSING, reference={"runs": True, "versions": {}, "devices": ["cpu"]})
    result = run(monkeypatch, ScriptedExecutor(a=[Diagnosed(nothing), Finished()]))
    assert result.exit_code == 4
    assert "Ray has no authentication" in result.stdout


def test_ctrl_c_prints_the_received_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        monkeypatch, ScriptedExecutor(a=[Diagnosed(report(torch=TORCH)), Finished()], b=None), "--format", "json"
    )
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"]
    assert [one["error"] for one in found["machines"]] == [None, "interrupted before it answered"]
