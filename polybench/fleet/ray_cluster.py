"""A connection to a Ray cluster, and its nodes; everything that can go wrong is a sentence, and soon."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.ray_address import look_for
from polybench.fleet.shipped import shipped

T = TypeVar("T")

_CONNECT_SECONDS = 75.0
"""For a cluster that answers: Ray starts a server for each client, which takes seconds, and tries for 30."""
_SLOW_START = "Starting Ray client server failed"
_ACCELERATOR = "accelerator_type:"


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
        ship: send this polybench to its nodes.
    """

    def __init__(self, on: str, *, ship: bool = False) -> None:
        address = os.environ.get("RAY_ADDRESS", "auto") if on == "auto" else on
        if find_spec("ray") is None:
            raise BadInput(f"--on {on}: Ray is not installed; pip install 'polybench[ray]'")
        self.warning = look_for(on, address)
        import ray  # for what takes a second, an address where nobody is need not wait

        if ray.is_initialized():  # of a Python program, which would lose it with ours
            raise BadInput(f"--on {on}: this process is connected to Ray already; ray.shutdown() first")
        self.ray: Any = ray
        self._quiet = contextlib.ExitStack()
        # Ray prints what it thinks of nodes to standard output, where only the result belongs.
        nowhere = self._quiet.enter_context(open(os.devnull, "w"))  # noqa: PTH123, SIM115
        self._quiet.enter_context(contextlib.redirect_stdout(nowhere))
        try:
            sent = self._quiet.enter_context(shipped()) if ship else None
            _within(_CONNECT_SECONDS, lambda: self._connect(on, address, sent))
        except BaseException:
            self.close()
            raise

    def _connect(self, on: str, address: str, sent: Path | None) -> None:
        import logging

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        for last in (False, True):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of what is said below in a sentence
                    if sent is not None:  # Ray puts it in front of what is installed there
                        options["runtime_env"] = {"py_modules": [str(sent)]}
                    self.ray.init(address=address, **options)
                return
            except Exception as error:
                if last or _SLOW_START not in str(error):  # a busy head needs more than Ray gives it, once
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


def _why_not(text: str, version: str) -> str:
    """Ray's words in one sentence."""
    found = re.search(r"started with:\s*Ray: (\S+)\s*Python: (\S+)", text)
    if found and "ersion mismatch" in text:
        import platform

        return (
            f"the cluster has Ray {found[1]} and Python {found[2]}, here are Ray {version} and Python"
            f" {platform.python_version()}; they must be the same: pip install ray=={found[1]}"
        )
    if _SLOW_START in text:
        return (
            "Ray's head could not start a server for this client within 30 s, twice; is it busy? Among Ray's"
            " logs there: ray_client_server_*.err"
        )
    return " ".join(text.split())[:300]
