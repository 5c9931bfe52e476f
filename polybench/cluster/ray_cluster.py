"""Connection to a Ray cluster and its nodes; every failure is reported as one sentence within seconds."""

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

from polybench.cluster.package_upload import package_copy
from polybench.cluster.ray_address import discover
from polybench.errors import BadInput, install_command
from polybench.machine import interrupts
from polybench.schema.options import MachineGroup

T = TypeVar("T")

_CONNECT_SECONDS = 75.0
"""Timeout for a cluster that responds: Ray takes seconds to start a server per client, and tries for 30."""
_SLOW_START = "Starting Ray client server failed"
_ACCELERATOR = "accelerator_type:"


class RayNode(NamedTuple):
    """A node of the cluster."""

    id: str
    hostname: str
    resources: dict[str, float]

    @property
    def cpus(self) -> float:
        """CPUs that Ray may use."""
        return self.resources.get("CPU", 0.0)

    @property
    def gpus(self) -> float:
        """GPUs that Ray may use."""
        return self.resources.get("GPU", 0.0)

    def satisfies(self, group: MachineGroup) -> bool:
        """Return True if the node is of the group's class."""
        required = [group.resources] if group.resources else []
        required += [_ACCELERATOR + group.accelerator] if group.accelerator else []
        required += ["GPU"] if _needs_gpu(group) else []
        return self.cpus >= 1 and all(self.resources.get(name, 0) > 0 for name in required)


def _needs_gpu(group: MachineGroup) -> bool:
    """Return True if all devices are GPUs; otherwise a missing GPU only makes its rows unavailable."""
    devices = group.devices or ("cpu",)
    return all(device.startswith("cuda") for device in devices)


def missing_resources(group: MachineGroup, nodes: Iterable[RayNode]) -> str | None:
    """Return the reason why no node is of the group's class; None if one is."""
    all_nodes = list(nodes)
    if any(node.satisfies(group) for node in all_nodes):
        return None
    names = {name for node in all_nodes for name in node.resources}
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


class RayCluster:
    """Connection to a cluster until `close`.

    Args:
        target: `auto`, or `ray://HOST:PORT`.
        upload: send this polybench to its nodes.
    """

    def __init__(self, target: str, *, upload: bool = False) -> None:
        address = os.environ.get("RAY_ADDRESS", "auto") if target == "auto" else target
        if find_spec("ray") is None:
            raise BadInput(f"--on {target}: Ray is not installed; {install_command('ray')}")
        self.warning = discover(target, address)
        import ray  # takes a second, so check the address first

        if ray.is_initialized():  # by the calling program, whose connection `close` would end
            raise BadInput(f"--on {target}: this process is already connected to Ray; call ray.shutdown() first")
        self.ray: Any = ray
        self._output_guard = contextlib.ExitStack()
        # Ray prints messages about nodes to standard output, which is reserved for the result.
        null_device = self._output_guard.enter_context(open(os.devnull, "w"))  # noqa: PTH123, SIM115
        self._output_guard.enter_context(contextlib.redirect_stdout(null_device))
        try:
            package = self._output_guard.enter_context(package_copy()) if upload else None
            _with_timeout(_CONNECT_SECONDS, lambda: self._connect(target, address, package))
        except BaseException:
            self.close()
            raise

    def _connect(self, target: str, address: str, package: Path | None) -> None:
        import logging

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        for is_last_attempt in (False, True):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the error below says the same
                    if package is not None:  # Ray prefers it to an installed package
                        options["runtime_env"] = {"py_modules": [str(package)]}
                    self.ray.init(address=address, **options)
                return
            except Exception as error:
                if is_last_attempt or _SLOW_START not in str(error):  # a busy head may need a second attempt
                    raise BadInput(f"--on {target}: {_explain(str(error), self.ray.__version__)}") from error

    def nodes(self) -> list[RayNode]:
        """Return the nodes that are alive."""
        return [
            RayNode(one["NodeID"], one["NodeManagerHostname"], one["Resources"])
            for one in self.ray.nodes()
            if one["Alive"]
        ]

    def node_options(self, node: RayNode, **options: Any) -> dict[str, Any]:
        """Return the options that bind a task or an actor to a node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False), **options}

    def close(self) -> None:
        """Disconnect from the cluster, which ends all tasks and actors of this process."""
        with contextlib.suppress(Exception):  # a broken connection is already closed
            self.ray.shutdown()
        self._output_guard.close()


def _with_timeout(seconds: float, function: Callable[[], None]) -> None:
    """Call the function in a thread, since Ray would install signal handlers in this one, and may block
    forever.
    """
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


def _explain(text: str, version: str) -> str:
    """Summarize Ray's error message in one sentence."""
    found = re.search(r"started with:\s*Ray: (\S+)\s*Python: (\S+)", text)
    if found and "ersion mismatch" in text:
        import platform

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
