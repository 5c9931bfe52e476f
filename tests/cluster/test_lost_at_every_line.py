"""A node that is lost after any line of its log: another one resumes, on the simulated machine and in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from polybench.cluster import run as run_module
from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import Lines, Message, NodeLost, Task, encode_line, message_decoder
from polybench.cluster.node import run_task
from polybench.cluster.run import run_on_cluster
from polybench.log import AnyEvent, StudyResumed, Warned, read_log
from polybench.results.document import derive
from polybench.runner.checkpoint import ClusterRun
from polybench.runner.progress import NullProgress
from polybench.schema.options import SINGLE_MACHINE, MachineGroup
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.simulated_machine import Machine, Script, study_of

SCRIPTS = {"torch": Script(), "tf": Script(0.014)}
FIELDS: dict[str, Any] = {"processes": 2, "rounds_per_process": 2, "steps_per_round": 5}


class _Killed(BaseException):
    """The end of a node program that no code can handle."""


class NodesInMemory:
    """An Executor that runs node programs in this process; the first one is killed after a line of its log."""

    def __init__(self, last_line: int = 0) -> None:
        self._last_line, self._events = last_line, deque[Event]()
        self.sent: list[Lines] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        return []

    def nodes(self) -> list[Node]:
        return []

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        def send(message: Message) -> None:
            if isinstance(message, Lines) and not task.log and message.first > self._last_line > 0:
                raise _Killed  # also while it unwinds
            self._events.append(Event(group.label, message_decoder.decode(encode_line(message))))
            if isinstance(message, Lines):
                self.sent.append(message)

        try:
            run_task(task, send)
        except _Killed:
            self._events.append(Event(group.label, NodeLost("it was killed")))

    def events(self, seconds: float) -> list[Event]:
        return [self._events.popleft()]

    def stop(self) -> None: ...

    def close(self) -> None: ...


def measured(
    nodes: NodesInMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[StudyDocument, list[AnyEvent]]:
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: nodes)
    cluster = ClusterRun(study=study_of(SCRIPTS, **FIELDS), groups=SINGLE_MACHINE, on="memory")
    with Machine(seed=1).simulate(SCRIPTS):
        document = run_on_cluster(cluster, NullProgress(), store=Store(folder)).only_document
    (log,) = folder.iterdir()
    return document, read_log(log)


def test_what_a_node_sends_is_proportional_to_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = NodesInMemory()
    document, events = measured(nodes, tmp_path / "r", monkeypatch)
    assert nodes.sent == [Lines(number, [event]) for number, event in enumerate(events, start=1)]
    assert derive(events) == document


def test_no_line_is_lost_or_sent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = measured(NodesInMemory(), tmp_path / "r", monkeypatch)
    for last_line in range(1, len(whole)):
        nodes = NodesInMemory(last_line)
        document, events = measured(nodes, tmp_path / f"r{last_line}", monkeypatch)
        note = next(event for event in events if isinstance(event, Warned) and "was lost" in event.text)
        assert events.index(note) == len(events) - 2  # before the end
        events.remove(note)
        assert nodes.sent == [Lines(number, [event]) for number, event in enumerate(events, start=1)]
        assert [type(event) for event in events[:last_line]] == [type(event) for event in whole[:last_line]]
        assert [type(event) for event in events].count(StudyResumed) == len(document.resumed) == 1
        assert [(row.status, [*map(len, row.nested_step_times)]) for row in document.results] == [("ok", [2, 2])] * 2
