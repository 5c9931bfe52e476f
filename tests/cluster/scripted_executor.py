"""An executor whose machines send scripted messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import Lines, Message, NodeLost, Task
from polybench.errors import BadInput
from polybench.log import StudyResumed
from polybench.schema.options import MachineGroup
from tests.cluster.cluster_runs import study_log

Script = list[Message]

SENT = NodeLost("placeholder for a log with three process runs")
LAST = NodeLost("placeholder for the complete log")
OTHER_IMAGES = NodeLost("placeholder for a log with other images")
CTRL_C = NodeLost("placeholder for Ctrl-C, after which the machine is gone")
NODE_GONE = NodeLost("the node is gone")


def sent(task: Task, *, end: Literal["finished", "interrupted"] | None = None, **settings: str) -> Lines:
    """Return a log with three process runs, or lines that resume the task's log, which has them."""
    log = study_log(task.header, task.study, end=end, **settings).events
    resumed = StudyResumed(resumed_at="2026-01-01T00:00:00+00:00", processes=3, trainings=0)
    return Lines(len(task.log) + 1, [resumed, *log[len(log) - bool(end) :]] if task.log else log)


class ScriptedExecutor:
    """An Executor that plays the next script of a group at each start; without one, it rejects the start."""

    def __init__(self, *, error: str = "", warnings: Sequence[str] = (), **scripts: list[Script]) -> None:
        self.scripts, self._error, self._warnings = scripts, error, list(warnings)
        self.started: list[tuple[str, Task, str | None]] = []
        self.closed = False
        self._events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        if self._error:
            raise BadInput(self._error)
        return self._warnings

    def nodes(self) -> list[Node]:
        return [Node(MachineGroup(label=label), f"host-{label}") for label in self.scripts]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        self.started.append((group.label, task, preferred_host))
        if not self.scripts[group.label]:
            raise BadInput("no script is left")
        logs = {
            id(SENT): sent(task),
            id(LAST): sent(task, end="finished"),
            id(OTHER_IMAGES): sent(task, data_sha256="other"),
        }
        script = self.scripts[group.label].pop(0)
        self._events += [Event(group.label, logs.get(id(one), one)) for one in script]

    def events(self, seconds: float) -> list[Event]:
        if self._events and self._events[0].message is CTRL_C:
            self._events[0] = self._events[0]._replace(message=NODE_GONE)
            raise KeyboardInterrupt
        events = list(itertools.takewhile(lambda event: event.message is not CTRL_C, self._events))
        del self._events[: len(events)]
        return events

    def stop(self) -> None: ...

    def close(self) -> None:
        self.closed = True
