"""`--on auto` and `--on ray://HOST:PORT`: every group on a node of a Ray cluster, which it has to itself.

Ray Client has no generators that stream, so the driver asks each actor again and again for what was said.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.data import NAMES
from polybench.fleet import ray_node
from polybench.fleet.executor import Event, Lost, Place
from polybench.fleet.messages import Finished, Message, Refused, Stage, Task
from polybench.fleet.packed import content_sha256, pack
from polybench.fleet.program import differences, this_program
from polybench.fleet.ray_cluster import Cluster, Node, lacking

_ASK_SECONDS = 20.0
"""How long a node keeps a question open; what it says comes at once."""
_CHECK_SECONDS = 60.0


class _Waiting(NamedTuple):
    """A group for which no node is free yet."""

    group: MachineGroup
    task: Task
    near: str | None


class _Running(NamedTuple):
    """A group on its node."""

    label: str
    node: Node
    actor: Any
    task: Task


class RayExecutor:
    """Groups on nodes: as many side by side as there are nodes of their classes."""

    def __init__(self, on: str, *, ship: bool = False) -> None:
        self._cluster = Cluster(on, ship=ship)
        self._ship = ship
        self._ray = self._cluster.ray
        self._waiting: list[_Waiting] = []
        self._running: dict[Any, _Running] = {}
        """By the question that is open."""
        self._events: list[Event] = []
        self._lost: set[str] = set()
        """IDs of nodes on which a node program was lost: another one is taken where there is one."""
        self._digests: dict[Path, str] = {}
        self._packed: dict[str, Any] = {}
        """Path of images -> what was put into the object store."""

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Every node that might be used has the driver's polybench; every class has a node."""
        nodes = self._cluster.nodes()
        for group in groups:
            if why := lacking(group, nodes):
                raise BadInput(f"{group.label}: {why}")
        usable = [node for node in nodes if any(node.has(group) for group in groups)]
        warnings = [self._cluster.warning] if self._cluster.warning else []
        nice = [node.hostname for node, facts in self._facts(usable) if facts.less_priority]
        if nice:
            names = ", ".join(dict.fromkeys(nice))
            warnings.append(
                f"Ray runs what it starts on {names} with less priority than other programs;"
                " RAY_worker_niceness=0 ray start ... leaves it as it is"
            )
        return warnings

    def machines(self) -> list[Place]:
        """Every node with a CPU, by its host's name; where several have one, numbered."""
        seen: Counter[str] = Counter()
        places = []
        for node in sorted(self._cluster.nodes(), key=lambda node: node.hostname):
            if node.has(MachineGroup()):
                seen[node.hostname] += 1
                number = seen[node.hostname]
                label = node.hostname if number == 1 else f"{node.hostname}-{number}"
                places.append(Place(MachineGroup(label=label), node.hostname))
        return places

    def _facts(self, nodes: Sequence[Node]) -> list[tuple[Node, ray_node.Facts]]:
        ask = self._ray.remote(ray_node.facts)
        try:
            asked = [
                ask.options(**self._cluster.on_node(node, num_cpus=0, max_retries=0)).remote()
                for node in nodes
            ]
        except ImportError as error:  # Ray Client has the head load what is sent
            raise BadInput(f"the head of the cluster: {self._why_not(error)}") from error
        mine, found = this_program(), []
        for node, answer in zip(nodes, asked, strict=True):
            try:
                with interrupts.waiting():
                    facts = self._ray.get(answer, timeout=_CHECK_SECONDS)
            except self._ray.exceptions.RayError as error:
                raise BadInput(f"{node.hostname}: {self._why_not(error)}") from error
            if wrong := differences(mine, facts.program):
                mended = self._or_ship if facts.program.python == mine.python else ""
                raise BadInput(f"{node.hostname}: {'; '.join(wrong)}{mended}")
            found.append((node, facts))
        return found

    @property
    def _or_ship(self) -> str:
        return "" if self._ship else "; or --ship sends the driver's polybench there"

    def _why_not(self, error: Exception) -> str:
        """Why nothing of polybench runs there."""
        said = _said(error)
        if "No module named" not in said:
            return said
        return (
            f"it lacks polybench, or what that needs ({said}); there: pip install"
            f" polybench=={this_program().version}{self._or_ship}"
        )

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        """On a free node of the class, or as soon as there is one."""
        self._waiting.append(_Waiting(group, task, near))
        with self._or_all_lost():
            self._place()

    def _place(self) -> None:
        """Have those begin for which there is a node now."""
        if not self._waiting:
            return
        nodes = self._cluster.nodes()
        taken = {one.node.id for one in self._running.values()}
        for one in list(self._waiting):
            of_class = [node for node in nodes if node.has(one.group)]
            # One that was lost is still said to live for a while.
            of_class = [node for node in of_class if node.id not in self._lost] or of_class
            free = [node for node in of_class if node.id not in taken]
            if not of_class:
                self._waiting.remove(one)
                why = lacking(one.group, nodes) or "no node is left"
                self._events.append(Event(one.group.label, Lost(why, again=False)))
            elif free:
                node = min(free, key=lambda node: node.hostname != one.near)
                taken.add(node.id)
                self._begin(one, node)
                self._waiting.remove(one)

    def _begin(self, one: _Waiting, node: Node) -> None:
        try:
            data = self._data_of(one.task)
        except (BadInput, OSError) as error:
            text = f"cannot read the images: {error}"
            self._events.append(Event(one.group.label, Refused(text, BadInput.exit_code)))
            return
        whole = {"num_cpus": node.cpus, "num_gpus": node.gpus, "max_restarts": 0, "max_concurrency": 4}
        try:
            remote = self._ray.remote(ray_node.RayNode).options(**self._cluster.on_node(node, **whole))
            actor = remote.remote()
        except ImportError as error:  # the head has to load it, as for `check`
            refused = Refused(f"the head of the cluster: {self._why_not(error)}", BadInput.exit_code)
            self._events.append(Event(one.group.label, refused))
            return
        running = _Running(one.group.label, node, actor, one.task)
        self._events.append(Event(running.label, Stage(f"waiting for the node {node.hostname}")))
        actor.begin.remote(one.task, data)
        self._ask(running)

    def _data_of(self, task: Task) -> ray_node.Data | None:
        """Of a study whose images lie at a path here; None where each machine has, or makes, its own."""
        path = Path(task.study.data).expanduser().absolute()
        if task.study.data in NAMES or not path.exists():
            return None
        if path not in self._digests:
            self._digests[path] = content_sha256(path)
        return ray_node.Data(str(path), self._digests[path])

    def _supply(self, running: _Running) -> None:
        """Send its images; through the object store, so that every node fetches them from there."""
        data = self._data_of(running.task)
        assert data is not None
        if data.path not in self._packed:
            self._packed[data.path] = self._ray.put(pack(Path(data.path)))
        running.actor.supply.remote(self._packed[data.path], data)

    def _ask(self, running: _Running) -> None:
        self._running[running.actor.next.remote(_ASK_SECONDS)] = running

    def events(self, seconds: float) -> list[Event]:
        """Of all nodes; and where one has become free, the next group begins."""
        if not self._events and self._running:
            with self._or_all_lost():
                self._look(seconds)
        events, self._events = self._events, []
        return events

    def _look(self, seconds: float) -> None:
        with interrupts.waiting():
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
            more, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for answer in dict.fromkeys([*ready, *more]):
            self._take(answer)
        self._place()

    @contextlib.contextmanager
    def _or_all_lost(self) -> Iterator[None]:
        """Where the cluster's head goes away, nobody is there to be asked for another node."""
        try:
            yield
        except ConnectionError as error:  # what Ray's client raises is no RayError
            lost = Lost(f"the cluster is gone: {_said(error)}", again=False)
            waiting = [one.group.label for one in self._waiting]
            labels = dict.fromkeys([*waiting, *(one.label for one in self._running.values())])
            self._events += [Event(label, lost) for label in labels]
            self._waiting.clear()
            self._running.clear()

    def _take(self, answer: Any) -> None:
        running = self._running[answer]
        last = self._hear(running, answer)
        if last is None:
            self._ask(running)
        del self._running[answer]  # not before: what raises loses all that is there
        if last is not None:
            self._end(running, last)

    def _hear(self, running: _Running, answer: Any) -> Message | Lost | None:
        """Pass on what a node has said; its last message is returned."""
        try:
            said: list[Message | Lost | ray_node.Wanted] = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            return Lost(f"the node {running.node.hostname} was lost: {self._why_not(error)}")
        for one in said:
            if isinstance(one, Finished | Refused | Lost):
                return one
            if not isinstance(one, ray_node.Wanted):
                self._events.append(Event(running.label, one))
                continue
            try:
                self._supply(running)
            except ConnectionError:
                raise
            except (BadInput, OSError) as error:  # too large, or not there any more
                return Refused(str(error), BadInput.exit_code)
        return None

    def _end(self, running: _Running, last: Message | Lost) -> None:
        if isinstance(last, Lost):
            self._lost.add(running.node.id)
        self._events.append(Event(running.label, last))
        with contextlib.suppress(Exception):  # it may be gone
            self._ray.kill(running.actor)

    def stop(self) -> None:
        """Those that wait never begin."""
        never = Lost("it was not begun", again=False)
        self._events += [Event(one.group.label, never) for one in self._waiting]
        self._waiting.clear()
        for one in self._running.values():
            with contextlib.suppress(Exception):  # it may be gone
                one.actor.stop.remote()

    def close(self) -> None:
        """The kernel ends a node program whose actor is gone, and its workers with it."""
        for one in self._running.values():
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.kill(one.actor)
        self._running.clear()
        self._cluster.close()


def _said(error: Exception) -> str:
    """The last of what Ray says, which is the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
