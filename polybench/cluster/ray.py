"""`--on auto` and `--on ray://HOST:PORT`: runs every group on a whole node of a Ray cluster.

Ray Client lacks streaming generators, so the driver repeatedly requests new messages from each actor.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import socket
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from polybench.cluster import ray_node
from polybench.cluster.executor import Event, Node, last_line
from polybench.cluster.messages import (
    LAST_MESSAGES,
    Message,
    NodeLost,
    Rejected,
    StageChanged,
    Task,
    current_fingerprint,
    differences,
)
from polybench.data import DATASET_NAMES
from polybench.errors import BadInput, install_command
from polybench.machine import interrupts
from polybench.parity_check.check import source_files
from polybench.schema.options import MachineGroup

_CLIENT_PORT = 10001
_LISTEN_SECONDS, _ANSWER_SECONDS = 3.0, 6.0
"""Time to reach an address, and for an answer of a busy Ray; Ray itself would try for minutes."""
_CONNECT_SECONDS = 75.0
"""Timeout for a cluster that responds: Ray takes seconds to start a server per client, and tries for 30."""
_CHECK_SECONDS = 60.0
_REQUEST_SECONDS = 20.0
"""Maximum wait of a node for its next message; messages are returned at once."""
_SLOW_START = "Starting Ray client server failed"
_ACCELERATOR = "accelerator_type:"
_DATA_FILES = (
    *("polybench/py.typed", "polybench/juliapkg.json", "polybench/engines/*.json", "polybench/schema/*.schema.json"),
    *("polybench/html_report/templates/*.*", "polybench/engines/flux/julia/PolyBench/**/*.toml"),
    *("julia/Project.toml", "julia/models/*.toml", "julia/models/*.jl"),
)
"""Files of polybench, in an installed package or a checkout, that are not Python or Julia."""


def check_address(target: str, address: str) -> str | None:
    """Check that something like Ray listens at `ray://HOST:PORT`, or at the address of this machine's cluster.

    Returns:
        A warning if the cluster is not on this machine.

    Raises:
        BadInput: nothing listens at the address, or another service.
    """
    is_client = address.startswith("ray://")
    if is_client:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        host, port = (host, port) if colon else (port, str(_CLIENT_PORT))
        if not host or "@" in host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536:
            hint = f"expected ray://HOST:PORT, such as ray://127.0.0.1:{_CLIENT_PORT}"
            raise BadInput(f"--on: invalid address: {hint}")  # it may contain a password
        hint = f"ray start --head starts a client server at port {_CLIENT_PORT}, or at --ray-client-server-port"
    else:
        from ray._private.services import canonicalize_bootstrap_address

        found = None
        with contextlib.suppress(ConnectionError, ValueError):
            found = canonicalize_bootstrap_address(address)
        if found is None:
            raise BadInput(f"--on {target}: Ray is not running on this machine; start it with: ray start --head")
        host, _, port = found.rpartition(":")
        hint = "set RAY_ADDRESS to the address of the cluster's head, by default HOST:6379"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _LISTEN_SECONDS):
            pass
    except (OSError, UnicodeError) as error:  # UnicodeError: invalid host name
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"--on {target}: nothing listens at {host} port {port} ({reason}); {hint}") from None
    if not is_client:
        return None
    if problem := _client_server_problem(f"{host}:{port}"):
        service = f"the service at {host} port {port} is not a Ray client server"
        raise BadInput(f"--on {target}: {service}: it {problem}; {hint}")
    return _remote_warning(target, host.strip("[]"))


def _client_server_problem(address: str) -> str | None:
    """Return why the service is not a Ray client server; Ray reports any other error itself."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return None  # only Ray has the certificates
    try:
        import grpc
    except ImportError:
        return None  # Ray reports missing packages
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/ray.rpc.RayletDriver/ClusterInfo")(b"", timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"did not answer within {_ANSWER_SECONDS:.0f} s"
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE):
                return "did not answer like one"
    return None


def _remote_warning(target: str, host: str) -> str | None:
    with contextlib.suppress(OSError):
        addresses = {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(host, None)}
        if not all(ip_address(address).is_loopback for address in addresses):
            return (
                f"--on {target}: {host} is not this machine; Ray has no authentication: anyone who can reach its ports"
                " can run programs there, so use a firewall or an SSH tunnel (docs/clusters.md)"
            )
    return None


class RayNode(NamedTuple):
    """A node of the cluster, with the resources that Ray may use."""

    id: str
    hostname: str
    resources: dict[str, float]

    def satisfies(self, group: MachineGroup) -> bool:
        """Return True if the node is of the group's class."""
        required = [group.resources] if group.resources else []
        required += [_ACCELERATOR + group.accelerator] if group.accelerator else []
        required += ["GPU"] if _needs_gpu(group) else []
        return self.resources.get("CPU", 0) >= 1 and all(self.resources.get(name, 0) > 0 for name in required)


def _needs_gpu(group: MachineGroup) -> bool:
    """Return True if all devices are GPUs; otherwise a missing GPU only makes its rows unavailable."""
    return all(device.startswith("cuda") for device in group.devices or ("cpu",))


def missing_resources(group: MachineGroup, nodes: Sequence[RayNode]) -> str | None:
    """Return the reason why no node is of the group's class; None if one is."""
    if any(node.satisfies(group) for node in nodes):
        return None
    names = {name for node in nodes for name in node.resources}
    if group.accelerator and _ACCELERATOR + group.accelerator not in names:
        available = sorted(name.removeprefix(_ACCELERATOR) for name in names if name.startswith(_ACCELERATOR))
        return f"no node has the accelerator {group.accelerator!r}; available: {', '.join(available) or 'none'}"
    if group.resources and group.resources not in names:
        predefined = ("node:", _ACCELERATOR, "CPU", "GPU", "memory", "object_store_memory")
        available = sorted(name for name in names if not name.startswith(predefined))
        return (
            f"no node has the resource {group.resources!r}; available: {', '.join(available) or 'none'}"
            f" (ray start --resources '{{\"{group.resources}\": 1}}')"
        )
    if _needs_gpu(group) and "GPU" not in names:
        return "no node of this cluster has a GPU; remove cuda from the devices"
    return "no node has all requested resources and a CPU"


def runtime_env(folder: Path) -> dict[str, Any]:
    """Copy this polybench into the folder, and return Ray's description of it for nodes that lack it.

    Ray would upload everything else that lies among the files, and follow links: keys, results, other packages.
    """
    root = Path(__file__).resolve().parents[2]
    for path in [*source_files(), *(path for pattern in _DATA_FILES for path in root.glob(pattern))]:
        file = path.parent.resolve() / path.name
        if file.is_relative_to(root) and file.is_file() and not file.is_symlink():
            copy = folder / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return {"working_dir": str(folder)}


def connect(target: str, address: str, *, upload: bool) -> Any:
    """Connect to a cluster that responds, and return the module `ray`."""
    import logging

    import ray  # takes a second, so check the address first

    if ray.is_initialized():  # by the calling program, whose connection `close` would end
        raise BadInput(f"--on {target}: this process is already connected to Ray; call ray.shutdown() first")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

    def init() -> None:
        for is_last_attempt in (False, True):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the error below says the same
                    ray.init(address=address, **options)
                return
            except Exception as error:
                if is_last_attempt or _SLOW_START not in str(error):  # a busy head may need a second attempt
                    raise BadInput(f"--on {target}: {explain_connection(str(error), ray.__version__)}") from error

    with tempfile.TemporaryDirectory(prefix="polybench-upload-") as folder:
        if upload:
            options["runtime_env"] = runtime_env(Path(folder))
        _with_timeout(_CONNECT_SECONDS, init)
    return ray


def _with_timeout(seconds: float, function: Callable[[], None]) -> None:
    """Call the function in a thread: Ray would install signal handlers in this one, and may block forever."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    with interrupts.interruptible():
        thread.join(seconds)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise BadInput(f"Ray did not answer within {seconds:.0f} s; run `ray status` on its head node")


def explain_connection(text: str, version: str) -> str:
    """Summarize Ray's error message in one sentence."""
    found = re.search(r"started with:\s*Ray: (\S+)\s*Python: (\S+)", text)
    if found and "ersion mismatch" in text:
        return (
            f"the cluster has Ray {found[1]} and Python {found[2]}, but this machine has Ray {version} and"
            f" Python {platform.python_version()}; install the same versions: pip install ray=={found[1]}"
        )
    if _SLOW_START in text:
        return (
            "Ray's head could not start a server for this client within 30 s, in two attempts; it may be busy;"
            " see ray_client_server_*.err in Ray's logs on the head"
        )
    return " ".join(text.split())[:300]


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
    data: ray_node.Data | None


class RayExecutor:
    """Runs groups in parallel, as many as there are nodes of their classes."""

    def __init__(self, target: str, *, upload: bool = False) -> None:
        address = os.environ.get("RAY_ADDRESS", "auto") if target == "auto" else target
        self._warning = check_address(target, address)
        self._upload = upload
        self._queue: list[_Queued] = []
        self._running: dict[Any, _Running] = {}
        """By the pending request for messages."""
        self._events: list[Event] = []
        self._lost_nodes: set[str] = set()
        """IDs of nodes that lost a node program; other nodes are preferred to them."""
        self._digests: dict[Path, str] = {}
        self._uploaded_data: dict[str, Any] = {}
        """Path of images -> reference to the object store."""
        with contextlib.ExitStack() as stack:
            # Ray prints messages about nodes to standard output, which is reserved for the result.
            null_device = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123
            stack.enter_context(contextlib.redirect_stdout(null_device))
            self._ray = connect(target, address, upload=upload)
            self._output_guard = stack.pop_all()

    def _nodes(self) -> list[RayNode]:
        return [
            RayNode(one["NodeID"], one["NodeManagerHostname"], one["Resources"])
            for one in self._ray.nodes()
            if one["Alive"]
        ]

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check that every class has a node, and every usable node has the driver's polybench."""
        nodes = self._nodes()
        for group in groups:
            if reason := missing_resources(group, nodes):
                raise BadInput(f"{group.label}: {reason}")
        usable = [node for node in nodes if any(node.satisfies(group) for group in groups)]
        found = [self._warning] if self._warning else []
        low_priority = [node.hostname for node, info in self._node_infos(usable) if info.has_lower_priority]
        if low_priority:
            names = ", ".join(dict.fromkeys(low_priority))
            found.append(
                f"Ray runs its workers on {names} with a lower priority than other programs;"
                " start it with: RAY_worker_niceness=0 ray start ..."
            )
        return found

    def nodes(self) -> list[Node]:
        """Return every node with a CPU, labelled by its host name; several nodes of a host are numbered."""
        counts: Counter[str] = Counter()
        nodes = []
        for node in sorted(self._nodes(), key=lambda node: node.hostname):
            if node.satisfies(MachineGroup()):
                counts[node.hostname] += 1
                number = counts[node.hostname]
                label = node.hostname if number == 1 else f"{node.hostname}-{number}"
                nodes.append(Node(MachineGroup(label=label), node.hostname))
        return nodes

    def _on_node(self, function: Any, node: RayNode, **options: Any) -> Any:
        """Return a function or class that Ray runs on this node.

        Raises:
            ImportError: the head, which has to load the module for Ray Client, lacks polybench.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
        return self._ray.remote(function).options(scheduling_strategy=strategy, **options)

    def _node_infos(self, nodes: Sequence[RayNode]) -> list[tuple[RayNode, ray_node.NodeInfo]]:
        try:
            requests = [self._on_node(ray_node.node_info, node, num_cpus=0).remote() for node in nodes]
        except ImportError as error:
            raise BadInput(f"head of the cluster: {self._explain(error)}") from error
        driver, infos = current_fingerprint(), []
        for node, request in zip(nodes, requests, strict=True):
            try:
                with interrupts.interruptible():
                    info = self._ray.get(request, timeout=_CHECK_SECONDS)
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
        text = last_line(error)
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
        nodes = self._nodes() if self._queue else []
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
        label, resources = queued.group.label, node.resources
        whole_node = {"num_cpus": resources["CPU"], "num_gpus": resources.get("GPU", 0), "max_concurrency": 4}
        try:
            data = self._describe_data(queued.task)
        except (BadInput, OSError) as error:
            self._events.append(Event(label, Rejected(f"cannot read the images: {error}", BadInput.exit_code)))
            return
        try:
            actor = self._on_node(ray_node.NodeActor, node, **whole_node).remote(queued.task)
        except ImportError as error:
            reason = f"head of the cluster: {self._explain(error)}"
            self._events.append(Event(label, Rejected(reason, BadInput.exit_code)))
            return
        self._events.append(Event(label, StageChanged(f"waiting for the node {node.hostname}")))
        self._running[actor.start.remote(data)] = _Running(label, node, actor, data)

    def _describe_data(self, task: Task) -> ray_node.Data | None:
        """Return the study's images at a path of this machine; None if each machine has or generates its own."""
        path = Path(task.study.data).expanduser().absolute()
        if task.study.data in DATASET_NAMES or not path.exists():
            return None
        if path not in self._digests:
            self._digests[path] = ray_node.content_sha256(path)
        return ray_node.Data(str(path), self._digests[path])

    def _send_data(self, running: _Running) -> list[Message]:
        """Send the images through the object store, so that nodes fetch them from there."""
        assert running.data is not None
        path = running.data.path
        if path not in self._uploaded_data:
            try:
                content = ray_node.pack(Path(path))
            except (BadInput, OSError) as error:  # too large, or deleted
                return [Rejected(str(error), BadInput.exit_code)]
            self._uploaded_data[path] = self._ray.put(content)
        self._running[running.actor.start.remote(running.data, self._uploaded_data[path])] = running
        return [StageChanged("receiving images")]

    def events(self, seconds: float) -> list[Event]:
        """Return the events of all nodes, and start the next group if a node is free."""
        if not self._events and self._running:
            with self._handle_lost_cluster():
                with interrupts.interruptible():
                    first, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
                    ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
                for request in dict.fromkeys([*first, *ready]):
                    self._handle(request)
                self._assign_nodes()
        events, self._events = self._events, []
        return events

    @contextlib.contextmanager
    def _handle_lost_cluster(self) -> Iterator[None]:
        """End all groups if the head of the cluster is lost, since no other node can be requested."""
        try:
            yield
        except ConnectionError as error:  # Ray's client does not raise RayError here
            lost = NodeLost(f"the connection to the cluster was lost: {last_line(error)}", can_retry=False)
            labels = [*(one.group.label for one in self._queue), *(one.label for one in self._running.values())]
            self._events += [Event(label, lost) for label in dict.fromkeys(labels)]
            self._queue.clear()
            self._running.clear()

    def _handle(self, request: Any) -> None:
        """Pass a node's messages on; request the next ones, or release the node after its last message."""
        running = self._running[request]
        try:
            messages: list[Message] | None = self._ray.get(request)
        except self._ray.exceptions.RayError as error:
            messages = [NodeLost(f"the node {running.node.hostname} was lost: {self._explain(error)}")]
        is_waiting = messages is None
        if messages is None:
            messages = self._send_data(running)
        has_ended = bool(messages) and isinstance(messages[-1], LAST_MESSAGES)
        if not has_ended and not is_waiting:
            self._running[running.actor.next_messages.remote(_REQUEST_SECONDS)] = running
        del self._running[request]  # only now, since `_handle_lost_cluster` needs it if a call above raises
        self._events += [Event(running.label, message) for message in messages]
        if has_ended:
            if isinstance(messages[-1], NodeLost):
                self._lost_nodes.add(running.node.id)
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
        """Kill all actors and disconnect; the kernel then kills their node programs and workers."""
        for one in self._running.values():
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.kill(one.actor)
        self._running.clear()
        with contextlib.suppress(Exception):  # a broken connection is already closed
            self._ray.shutdown()
        self._output_guard.close()
