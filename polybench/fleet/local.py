"""`--on local`: the node program in a process of this machine, one group after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.machines import ONE_MACHINE, MachineGroup
from polybench.fleet.executor import Event, Lost, Place
from polybench.fleet.messages import Finished, Refused, Task
from polybench.fleet.node_process import NodeProcess


class LocalExecutor:
    """Each group on this machine, which is taken to be of any class: it shows what a fleet would do."""

    def __init__(self, on: str) -> None:
        if on != "local":
            raise BadInput(f"--on {on}: local has nothing behind it; write --on local")
        self._waiting: deque[tuple[str, Task]] = deque()
        self._running: tuple[str, NodeProcess] | None = None
        self._given_up: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Nothing can be wrong; that several machines are one is said."""
        if len(groups) == 1:
            return []
        labels = ", ".join(group.label for group in groups)
        return [f"--on local: {labels} are this machine each, one after the other"]

    def machines(self) -> list[Place]:
        """This one."""
        return [Place(ONE_MACHINE[0])]

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:  # noqa: ARG002
        """After those that were started before."""
        self._waiting.append((group.label, task))

    def events(self, seconds: float) -> list[Event]:
        """From the one that runs."""
        if self._given_up:
            given_up, self._given_up = self._given_up, []
            return given_up
        if self._running is None:
            if not self._waiting:
                return []
            label, task = self._waiting.popleft()
            self._running = label, NodeProcess(task)
        label, process = self._running
        with interrupts.waiting():
            readable = process.readable(seconds)
        messages = process.receive() if readable else []
        if any(isinstance(message, Finished | Refused | Lost) for message in messages):
            process.close()
            self._running = None
        return [Event(label, message) for message in messages]

    def stop(self) -> None:
        """The one that runs; the others never begin."""
        if self._running is not None:
            self._running[1].stop()
        never = Lost("it was not begun", again=False)
        self._given_up += [Event(label, never) for label, _ in self._waiting]
        self._waiting.clear()

    def close(self) -> None:
        """End it."""
        self._waiting.clear()
        running, self._running = self._running, None
        if running is not None:
            running[1].close()
