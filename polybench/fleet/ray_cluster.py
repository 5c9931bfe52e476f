"""A connection to a Ray cluster, and its nodes; everything that can go wrong is a sentence, and soon."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeVar

from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup

T = TypeVar("T")

_PROBE_SECONDS = 3.0
_CONNECT_SECONDS = 60.0
"""For a cluster that answers: Ray starts a server for each client, which takes seconds."""
_TRIES = {"RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "2", "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "2"}
"""Ray tries three times: with its own 5, 10 and 15 seconds nobody learns within ten that it is no Ray."""
_ACCELERATOR = "accelerator_type:"
_CLIENT_PORT = 10001


class Node(NamedTuple):
    """One of the cluster's."""

    id: str
    hostname: str
    resources: dict[str, float]

    @property
    def cpus(self) -> float:
        """As many as Ray was told to lend."""
        return self.resources.get("CPU", 0.0)

    @property
    def gpus(self) -> float:
        """Whole ones."""
        return self.resources.get("GPU", 0.0)

    def has(self, group: MachineGroup) -> bool:
        """Whether it is of this class."""
        wanted = [group.resource] if group.resource else []
        wanted += [_ACCELERATOR + group.accelerator] if group.accelerator else []
        wanted += ["GPU"] if _needs_gpu(group) else []
        return self.cpus >= 1 and all(self.resources.get(name, 0) > 0 for name in wanted)


def _needs_gpu(group: MachineGroup) -> bool:
    """Where it has something to do without one, what needs it is an unavailable row."""
    devices = group.devices or ("cpu",)
    return all(device.startswith("cuda") for device in devices)


def lacking(group: MachineGroup, nodes: Iterable[Node]) -> str | None:
    """Why none of these nodes is of a group's class; None if one is."""
    known = list(nodes)
    if any(node.has(group) for node in known):
        return None
    names = {name for node in known for name in node.resources}
    if group.accelerator and _ACCELERATOR + group.accelerator not in names:
        there = sorted(name.removeprefix(_ACCELERATOR) for name in names if name.startswith(_ACCELERATOR))
        return f"no node has the accelerator {group.accelerator!r}; there are: {', '.join(there) or 'none'}"
    if group.resource and group.resource not in names:
        usual = ("node:", _ACCELERATOR, "CPU", "GPU", "memory", "object_store_memory")
        there = sorted(name for name in names if not name.startswith(usual))
        return (
            f"no node has the resource {group.resource!r}; there are: {', '.join(there) or 'none'}"
            f" (ray start --resources '{{\"{group.resource}\": 1}}')"
        )
    if _needs_gpu(group) and "GPU" not in names:
        return "no node of this cluster has a GPU; leave cuda out of the devices"
    return "no node has all that it asks for, and a CPU"


class Cluster:
    """A connection, until it is closed.

    Args:
        on: `auto`, or `ray://HOST:PORT`.
    """

    def __init__(self, on: str) -> None:
        address = os.environ.get("RAY_ADDRESS", "auto") if on == "auto" else on
        os.environ.update({name: os.environ.get(name, value) for name, value in _TRIES.items()})
        if find_spec("ray") is None:
            raise BadInput(f"--on {on}: Ray is not installed; pip install 'polybench[ray]'")
        self.warning: str | None = None
        self._quiet = contextlib.ExitStack()
        if address.startswith("ray://"):
            host, port = _host_and_port(on, address.removeprefix("ray://"))
            _probe(on, host, port)
            self.warning = _not_loopback(on, host)
        else:
            _probe_local(on, address)
        import ray  # for what takes a second, an address where nobody is need not wait

        self.ray: Any = ray
        # Ray prints what it thinks of nodes to standard output, where only the result belongs.
        nowhere = self._quiet.enter_context(open(os.devnull, "w"))  # noqa: PTH123, SIM115
        self._quiet.enter_context(contextlib.redirect_stdout(nowhere))
        try:
            _within(_CONNECT_SECONDS, lambda: self._connect(on, address))
        except BaseException:
            self.close()
            raise

    def _connect(self, on: str, address: str) -> None:
        import logging

        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is said below in a sentence
                self.ray.init(address=address, **quiet)
        except Exception as error:
            raise BadInput(f"--on {on}: {_why_not(str(error), self.ray.__version__)}") from error

    def nodes(self) -> list[Node]:
        """Those that live."""
        return [
            Node(one["NodeID"], one["NodeManagerHostname"], one["Resources"])
            for one in self.ray.nodes()
            if one["Alive"]
        ]

    def on_node(self, node: Node, **more: Any) -> dict[str, Any]:
        """Options that bind a task or an actor to a node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False), **more}

    def close(self) -> None:
        """Leave the cluster; it ends what was started from here."""
        with contextlib.suppress(Exception):  # a connection that is broken is closed
            self.ray.shutdown()
        self._quiet.close()


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Do it in a thread: Ray would set handlers of signals in this one, and may wait for ever."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    with interrupts.waiting():
        thread.join(seconds)
    if failed:
        raise failed[0]
    if thread.is_alive():
        raise BadInput(f"Ray did not answer within {seconds:.0f} s; look at its head node: ray status")


def _host_and_port(on: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(_CLIENT_PORT)
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536:
        raise BadInput(f"--on {on}: write ray://HOST:PORT, for example --on ray://127.0.0.1:{_CLIENT_PORT}")
    return host.strip("[]"), int(port)


def _probe(on: str, host: str, port: int) -> None:
    """Find out in seconds whether anybody listens: Ray itself tries for half a minute."""
    try:
        with socket.create_connection((host, port), _PROBE_SECONDS):
            pass
    except OSError as error:
        raise BadInput(
            f"--on {on}: nobody listens at {host} port {port} ({error.strerror or error}); start Ray there"
            f" with: ray start --head --ray-client-server-port {port}"
        ) from None


def _probe_local(on: str, address: str) -> None:
    """The same of the cluster that this machine belongs to."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)
    except (ConnectionError, ValueError):
        found = None
    if found is None:
        raise BadInput(f"--on {on}: no Ray runs on this machine; start it with: ray start --head")
    host, _, port = found.rpartition(":")
    _probe(on, host, int(port))


def _not_loopback(on: str, host: str) -> str | None:
    try:
        addresses = {one[4][0] for one in socket.getaddrinfo(host, None)}
    except OSError:
        return None
    if all(ip_address(str(address).partition("%")[0]).is_loopback for address in addresses):
        return None
    return (
        f"--on {on}: {host} is not this machine; Ray asks nobody who he is: whoever reaches its ports runs"
        " programs there, so they belong behind a firewall or an SSH tunnel (docs/clusters.md)"
    )


def _why_not(text: str, version: str) -> str:
    """Ray's words in one sentence."""
    found = re.search(r"started with:\s*Ray: (\S+)\s*Python: (\S+)", text)
    if found and "ersion mismatch" in text:
        import platform

        return (
            f"the cluster has Ray {found[1]} and Python {found[2]}, here are Ray {version} and Python"
            f" {platform.python_version()}; they must be the same: pip install ray=={found[1]}"
        )
    if "Starting Ray client server failed" in text:
        return (
            "Ray's head could not start a server for this client within 30 s; is it busy? Among Ray's logs"
            " there: ray_client_server_*.err"
        )
    if "timeout" in text or "timed out" in text:
        return "somebody listens there, and it is no Ray client server (ray start --head, port 10001)"
    return " ".join(text.split())[:300]
