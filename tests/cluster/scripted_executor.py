"""An executor whose machines send scripted messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import Message, NodeLost, Saved, Task
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup
from polybench.schema.study import to_json
from tests.factories import measured, study

Script = list[Message]

DOCUMENT = NodeLost("placeholder for a document with three process runs")
LAST = NodeLost("placeholder for the complete document")
OTHER_IMAGES = NodeLost("placeholder for a document with other images")
CTRL_C = NodeLost("placeholder for Ctrl-C, after which the machine is gone")
NODE_GONE = NodeLost("the node is gone")


def document(task: Task, *, finished: bool = False, **settings: str) -> Saved:
    saved = study(measured("fake/cpu", 0.01))
    saved.settings = msgspec.structs.replace(saved.settings, **settings)
    saved.id, saved.finished = task.header.id, finished
    return Saved(to_json(saved), None if finished else b"state")


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
        documents = {
            id(DOCUMENT): document(task),
            id(LAST): document(task, finished=True),
            id(OTHER_IMAGES): document(task, data_sha256="other"),
        }
        script = self.scripts[group.label].pop(0)
        self._events += [Event(group.label, documents.get(id(one), one)) for one in script]

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
