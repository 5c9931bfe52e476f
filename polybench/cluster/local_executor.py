"""`--on local`: runs the node program in a process of this machine, one group after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from polybench.cluster.executor import Event, Node, NodeLost
from polybench.cluster.messages import Finished, Rejected, Task
from polybench.cluster.node_process import NodeProcess
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.schema.options import SINGLE_MACHINE, MachineGroup


class LocalExecutor:
    """Runs each group on this machine, which counts as any class of machine; useful to try a cluster run."""

    def __init__(self, target: str) -> None:
        if target != "local":
            raise BadInput(f"--on {target}: local takes no address; use --on local")
        self._queue: deque[tuple[str, Task]] = deque()
        self._running: tuple[str, NodeProcess] | None = None
        self._lost_events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Warn if several machine groups run on this one machine."""
        if len(groups) == 1:
            return []
        labels = ", ".join(group.label for group in groups)
        return [f"--on local: {labels} all run on this machine, one after another"]

    def nodes(self) -> list[Node]:
        """Return this machine."""
        return [Node(SINGLE_MACHINE[0])]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:  # noqa: ARG002
        """Queue the task after those that were started before."""
        self._queue.append((group.label, task))

    def events(self, seconds: float) -> list[Event]:
        """Return messages of the running process."""
        if self._lost_events:
            lost_events, self._lost_events = self._lost_events, []
            return lost_events
        if self._running is None:
            if not self._queue:
                return []
            label, task = self._queue.popleft()
            self._running = label, NodeProcess(task)
        label, process = self._running
        with interrupts.interruptible():
            is_readable = process.is_readable(seconds)
        messages = process.receive() if is_readable else []
        if any(isinstance(message, Finished | Rejected | NodeLost) for message in messages):
            process.close()
            self._running = None
        return [Event(label, message) for message in messages]

    def stop(self) -> None:
        """Stop the running process and remove the queued tasks."""
        if self._running is not None:
            self._running[1].stop()
        lost = NodeLost("it was not started", can_retry=False)
        self._lost_events += [Event(label, lost) for label, _ in self._queue]
        self._queue.clear()

    def close(self) -> None:
        """End the running process."""
        self._queue.clear()
        running, self._running = self._running, None
        if running is not None:
            running[1].close()
