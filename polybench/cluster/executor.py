"""Executors, which run node programs on machines: the protocol, and the table of executors by `--on`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from polybench.cluster.messages import Message, Task
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup


class NodeLost(msgspec.Struct, frozen=True):
    """A node program ended without its last message: its machine is gone, or it was killed."""

    reason: str
    can_retry: bool = True
    """True if another machine of the class may be available."""


class Event(NamedTuple):
    """A message of a group's node program."""

    label: str
    message: Message | NodeLost


class Node(NamedTuple):
    """An available machine that can run a node program."""

    group: MachineGroup
    hostname: str | None = None
    """Host name for `start`, if several machines are of this class."""


class Executor(Protocol):
    """Runs the node program (`cluster.node`) of each group on a machine of its own.

    Constructed with the value of `--on`. Call `check`, `start` for each group, and `events` until each group
    has ended (Finished, Rejected or NodeLost). A group with NodeLost may be started again with its
    checkpoint. Always call `close` last.
    """

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check within 10 seconds, before anything is started, that the groups can run.

        Returns:
            Warnings.

        Raises:
            BadInput: the cluster does not respond, has another version, or lacks a class of machine.
        """
        ...

    def nodes(self) -> list[Node]:
        """Return all available machines, or one of many equal ones; labels are unique.

        Raises:
            BadInput: the cluster does not respond.
        """
        ...

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        """Start the task as soon as a machine of the class is free; returns immediately.

        Args:
            group: class of the machine.
            task: task of the node program.
            preferred_host: host name of the machine that started the study, since only that one can resume
                it.
        """
        ...

    def events(self, seconds: float) -> list[Event]:
        """Return the events of all groups, in order for each group; waits at most `seconds` for the first
        one.

        Waits in `core.interrupts.interruptible`.
        """
        ...

    def stop(self) -> None:
        """Send Stop to every node program, and remove waiting groups from the queue (NodeLost)."""
        ...

    def close(self) -> None:
        """Kill whatever still runs on any machine."""
        ...


EXECUTORS: dict[str, str] = {
    "local": "polybench.cluster.local:LocalExecutor",
    "auto": "polybench.cluster.ray_executor:RayExecutor",
    "ray": "polybench.cluster.ray_executor:RayExecutor",
    "slurm": "polybench.cluster.slurm_executor:SlurmExecutor",
}
"""Prefix of `--on` up to the colon -> executor class. ADD AN EXECUTOR here."""


UPLOAD_TARGETS = ("auto", "ray")
"""Prefixes whose machines can receive this polybench: their classes take `upload`."""


def supports_upload(target: str) -> bool:
    """Return True if machines at this address can receive this polybench."""
    return target.partition(":")[0] in UPLOAD_TARGETS


def check_target(target: str, *, upload: bool = False) -> None:
    """Check that an executor for this address exists, without connecting.

    Raises:
        BadInput: the address is of an unknown kind, or does not support uploads.
    """
    kind = target.partition(":")[0]
    if kind not in EXECUTORS:
        known = ", ".join(EXECUTORS)
        raise BadInput(f"--on {target}: unknown kind of machines: expected one of {known}")
    if upload and not supports_upload(target):
        raise BadInput(f"--upload: --on {kind} already runs the polybench of this machine; remove --upload")


def make_executor(target: str, *, upload: bool = False) -> Executor:
    """Create the executor for the value of `--on`.

    Args:
        target: value of `--on`.
        upload: send this polybench to the machines, whatever is installed there.

    Raises:
        BadInput: the address is of an unknown kind, or does not support uploads.
    """
    check_target(target, upload=upload)
    module, _, name = EXECUTORS[target.partition(":")[0]].partition(":")
    arguments = {"upload": True} if upload else {}
    executor: Executor = getattr(importlib.import_module(module), name)(target, **arguments)
    return executor
