"""`--on auto` and `--on ray://HOST:PORT`: runs every group on a whole node of a Ray cluster.

Ray Client lacks streaming generators, so the driver repeatedly requests new messages from each actor.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polybench.cluster import ray_node
from polybench.cluster.executor import Event, Node, NodeLost
from polybench.cluster.messages import Finished, Message, Rejected, StageChanged, Task, current_fingerprint, differences
from polybench.cluster.ray_cluster import RayCluster, RayNode, missing_resources
from polybench.cluster.ray_node import content_sha256, pack
from polybench.data import DATASET_NAMES
from polybench.errors import BadInput, install_command
from polybench.machine import interrupts
from polybench.schema.options import MachineGroup

_REQUEST_SECONDS = 20.0
"""Maximum wait of a node for its next message; messages are returned at once."""
_CHECK_TIMEOUT = 60.0


class _Queued(NamedTuple):
    """A group that waits for a free node."""

    group: MachineGroup
    task: Task
    preferred_host: str | None


class _Running(NamedTuple):
    """A group that runs on a node."""

    label: str
    node: RayNode
    actor: Any
    task: Task


class RayExecutor:
    """Runs groups in parallel, as many as there are nodes of their classes."""

    def __init__(self, target: str, *, upload: bool = False) -> None:
        self._cluster = RayCluster(target, upload=upload)
        self._upload = upload
        self._ray = self._cluster.ray
        self._queue: list[_Queued] = []
        self._running: dict[Any, _Running] = {}
        """By the pending request for messages."""
        self._events: list[Event] = []
        self._lost_nodes: set[str] = set()
        """IDs of nodes that lost a node program; other nodes are preferred to them."""
        self._digests: dict[Path, str] = {}
        self._uploaded_data: dict[str, Any] = {}
        """Path of images -> reference to the object store."""

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check that every class has a node, and every usable node has the driver's polybench."""
        nodes = self._cluster.nodes()
        for group in groups:
            if reason := missing_resources(group, nodes):
                raise BadInput(f"{group.label}: {reason}")
        usable = [node for node in nodes if any(node.satisfies(group) for group in groups)]
        warnings = [self._cluster.warning] if self._cluster.warning else []
        low_priority = [node.hostname for node, info in self._node_infos(usable) if info.has_lower_priority]
        if low_priority:
            names = ", ".join(dict.fromkeys(low_priority))
            warnings.append(
                f"Ray runs its workers on {names} with a lower priority than other programs;"
                " start it with: RAY_worker_niceness=0 ray start ..."
            )
        return warnings

    def nodes(self) -> list[Node]:
        """Return every node with a CPU, labelled by its host name; several nodes of a host are numbered."""
        counts: Counter[str] = Counter()
        nodes = []
        for node in sorted(self._cluster.nodes(), key=lambda node: node.hostname):
            if node.satisfies(MachineGroup()):
                counts[node.hostname] += 1
                number = counts[node.hostname]
                label = node.hostname if number == 1 else f"{node.hostname}-{number}"
                nodes.append(Node(MachineGroup(label=label), node.hostname))
        return nodes

    def _node_infos(self, nodes: Sequence[RayNode]) -> list[tuple[RayNode, ray_node.NodeInfo]]:
        task = self._ray.remote(ray_node.node_info)
        try:
            requests = [
                task.options(**self._cluster.node_options(node, num_cpus=0, max_retries=0)).remote() for node in nodes
            ]
        except ImportError as error:  # Ray Client loads the module on the head
            raise BadInput(f"head of the cluster: {self._explain(error)}") from error
        driver, infos = current_fingerprint(), []
        for node, request in zip(nodes, requests, strict=True):
            try:
                with interrupts.interruptible():
                    info = self._ray.get(request, timeout=_CHECK_TIMEOUT)
            except self._ray.exceptions.RayError as error:
                raise BadInput(f"{node.hostname}: {self._explain(error)}") from error
            if problems := differences(driver, info.fingerprint):
                hint = self._upload_hint if info.fingerprint.python == driver.python else ""
                raise BadInput(f"{node.hostname}: {'; '.join(problems)}{hint}")
            infos.append((node, info))
        return infos

    @property
    def _upload_hint(self) -> str:
        return "" if self._upload else "; or --upload sends the driver's polybench to it"

    def _explain(self, error: Exception) -> str:
        """Explain why polybench does not run on a node."""
        text = _last_line(error)
        if "No module named" not in text:
            return text
        return (
            f"it lacks polybench or one of its dependencies ({text}); on that machine:"
            f" {install_command(version=current_fingerprint().version)}{self._upload_hint}"
        )

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        """Start the task as soon as a node of the class is free."""
        self._queue.append(_Queued(group, task, preferred_host))
        with self._handle_lost_cluster():
            self._assign_nodes()

    def _assign_nodes(self) -> None:
        """Start the queued groups for which a node is free."""
        if not self._queue:
            return
        nodes = self._cluster.nodes()
        used_ids = {one.node.id for one in self._running.values()}
        for queued in list(self._queue):
            suitable = [node for node in nodes if node.satisfies(queued.group)]
            # Ray lists a lost node as alive for a while.
            suitable = [node for node in suitable if node.id not in self._lost_nodes] or suitable
            free = [node for node in suitable if node.id not in used_ids]
            if not suitable:
                self._queue.remove(queued)
                reason = missing_resources(queued.group, nodes) or "no node is left"
                self._events.append(Event(queued.group.label, NodeLost(reason, can_retry=False)))
            elif free:
                node = min(free, key=lambda node: node.hostname != queued.preferred_host)
                used_ids.add(node.id)
                self._start(queued, node)
                self._queue.remove(queued)

    def _start(self, queued: _Queued, node: RayNode) -> None:
        try:
            data = self._data_to_send(queued.task)
        except (BadInput, OSError) as error:
            text = f"cannot read the images: {error}"
            self._events.append(Event(queued.group.label, Rejected(text, BadInput.exit_code)))
            return
        whole_node = {"num_cpus": node.cpus, "num_gpus": node.gpus, "max_restarts": 0, "max_concurrency": 4}
        try:
            options = self._cluster.node_options(node, **whole_node)
            actor = self._ray.remote(ray_node.NodeActor).options(**options).remote()
        except ImportError as error:  # the head has to load the module, as in `check`
            rejected = Rejected(f"head of the cluster: {self._explain(error)}", BadInput.exit_code)
            self._events.append(Event(queued.group.label, rejected))
            return
        running = _Running(queued.group.label, node, actor, queued.task)
        self._events.append(Event(running.label, StageChanged(f"waiting for the node {node.hostname}")))
        actor.start.remote(queued.task, data)
        self._request_messages(running)

    def _data_to_send(self, task: Task) -> ray_node.Data | None:
        """Return the study's images at a path of this machine; None if each machine has or generates its own."""
        path = Path(task.study.data).expanduser().absolute()
        if task.study.data in DATASET_NAMES or not path.exists():
            return None
        if path not in self._digests:
            self._digests[path] = content_sha256(path)
        return ray_node.Data(str(path), self._digests[path])

    def _send_data(self, running: _Running) -> None:
        """Send the images through the object store, so that nodes fetch them from there."""
        data = self._data_to_send(running.task)
        assert data is not None
        if data.path not in self._uploaded_data:
            self._uploaded_data[data.path] = self._ray.put(pack(Path(data.path)))
        running.actor.send_data.remote(self._uploaded_data[data.path], data)

    def _request_messages(self, running: _Running) -> None:
        self._running[running.actor.next_messages.remote(_REQUEST_SECONDS)] = running

    def events(self, seconds: float) -> list[Event]:
        """Return the events of all nodes, and start the next group if a node is free."""
        if not self._events and self._running:
            with self._handle_lost_cluster():
                self._poll(seconds)
        events, self._events = self._events, []
        return events

    def _poll(self, seconds: float) -> None:
        with interrupts.interruptible():
            first, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
            ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for request in dict.fromkeys([*first, *ready]):
            self._handle(request)
        self._assign_nodes()

    @contextlib.contextmanager
    def _handle_lost_cluster(self) -> Iterator[None]:
        """End all groups if the head of the cluster is lost, since no other node can be requested."""
        try:
            yield
        except ConnectionError as error:  # Ray's client does not raise RayError here
            lost = NodeLost(f"the connection to the cluster was lost: {_last_line(error)}", can_retry=False)
            queued = [one.group.label for one in self._queue]
            labels = dict.fromkeys([*queued, *(one.label for one in self._running.values())])
            self._events += [Event(label, lost) for label in labels]
            self._queue.clear()
            self._running.clear()

    def _handle(self, request: Any) -> None:
        running = self._running[request]
        last = self._read_messages(running, request)
        if last is None:
            self._request_messages(running)
        del self._running[request]  # last, since `_handle_lost_cluster` needs it if a call above raises
        if last is not None:
            self._end(running, last)

    def _read_messages(self, running: _Running, request: Any) -> Message | NodeLost | None:
        """Add a node's messages to the events; return its last message, if it has arrived."""
        try:
            messages: list[Message | NodeLost | ray_node.DataRequest] = self._ray.get(request)
        except self._ray.exceptions.RayError as error:
            return NodeLost(f"the node {running.node.hostname} was lost: {self._explain(error)}")
        for message in messages:
            if isinstance(message, Finished | Rejected | NodeLost):
                return message
            if not isinstance(message, ray_node.DataRequest):
                self._events.append(Event(running.label, message))
                continue
            try:
                self._send_data(running)
            except ConnectionError:
                raise
            except (BadInput, OSError) as error:  # too large, or deleted
                return Rejected(str(error), BadInput.exit_code)
        return None

    def _end(self, running: _Running, last: Message | NodeLost) -> None:
        if isinstance(last, NodeLost):
            self._lost_nodes.add(running.node.id)
        self._events.append(Event(running.label, last))
        with contextlib.suppress(Exception):  # it may be gone
            self._ray.kill(running.actor)

    def stop(self) -> None:
        """Stop running groups, and remove queued groups from the queue."""
        lost = NodeLost("it was not started", can_retry=False)
        self._events += [Event(one.group.label, lost) for one in self._queue]
        self._queue.clear()
        for one in self._running.values():
            with contextlib.suppress(Exception):  # it may be gone
                one.actor.stop.remote()

    def close(self) -> None:
        """Kill all actors; the kernel then kills their node programs and workers."""
        for one in self._running.values():
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.kill(one.actor)
        self._running.clear()
        self._cluster.close()


def _last_line(error: Exception) -> str:
    """Return the last line of Ray's message, which has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
