"""Executors, which run node programs on machines: the protocol, and the table of executors by `--on`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple, Protocol

from polybench.cluster.messages import Message, Task
from polybench.errors import BadInput, install_command
from polybench.schema.options import MachineGroup


class Event(NamedTuple):
    """A message of a group's node program."""

    label: str
    message: Message


class Node(NamedTuple):
    """An available machine that can run a node program."""

    group: MachineGroup
    hostname: str | None = None
    """Host name for `start`, if several machines are of this class."""


class Executor(Protocol):
    """Runs the node program (`cluster.node`) of each group on a machine of its own.

    Constructed with the value of `--on`. Call `check`, `start` for each group, and `events` until each group
    has sent one of the LAST_MESSAGES. A group with NodeLost may be started again with its log. Always
    call `close` last.
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
        """Return all available machines, or one of many equal ones; labels are unique."""
        ...

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        """Start the task as soon as a machine of the group is free; returns immediately.

        The preferred host started the study, and only that one can resume it.
        """
        ...

    def events(self, seconds: float) -> list[Event]:
        """Return the events of all groups, in order for each group.

        Waits at most `seconds` for the first one, in `machine.interrupts.interruptible`.
        """
        ...

    def stop(self) -> None:
        """Send Stop to every node program, and remove waiting groups from the queue (NodeLost)."""
        ...

    def close(self) -> None:
        """Kill whatever still runs on any machine."""
        ...


class ExecutorSpec(NamedTuple):
    """Class of an executor as `module:name`, and the package that it needs with the extra that installs it."""

    path: str
    package: str | None = None
    extra: str = ""
    supports_upload: bool = False


_RAY = ExecutorSpec("polybench.cluster.ray:RayExecutor", "ray", "ray", supports_upload=True)

EXECUTORS: dict[str, ExecutorSpec] = {
    "local": ExecutorSpec("polybench.cluster.local:LocalExecutor"),
    "auto": _RAY,
    "ray": _RAY,
    "slurm": ExecutorSpec("polybench.cluster.slurm:SlurmExecutor", "submitit", "slurm"),
}
"""By the prefix of `--on` up to the colon. ADD AN EXECUTOR here."""


def supports_upload(target: str) -> bool:
    """Return True if machines at this address can receive this polybench."""
    spec = EXECUTORS.get(target.partition(":")[0])
    return spec is not None and spec.supports_upload


def check_target(target: str, *, upload: bool = False) -> None:
    """Raise BadInput if the address is of an unknown kind, or does not support uploads; without connecting."""
    kind = target.partition(":")[0]
    if kind not in EXECUTORS:
        raise BadInput(f"--on {target}: unknown kind of machines: expected one of {', '.join(EXECUTORS)}")
    if upload and not supports_upload(target):
        raise BadInput(f"--upload: --on {kind} already runs the polybench of this machine; remove --upload")


def make_executor(target: str, *, upload: bool = False) -> Executor:
    """Create the executor for the value of `--on`; with `upload`, the machines get this polybench.

    Raises:
        BadInput: the address is invalid, its package is not installed, or the cluster does not respond.
    """
    check_target(target, upload=upload)
    spec = EXECUTORS[target.partition(":")[0]]
    if spec.package is not None and find_spec(spec.package) is None:
        raise BadInput(f"--on {target} needs {spec.package}; {install_command(spec.extra)}")
    module, _, name = spec.path.partition(":")
    executor_class = getattr(importlib.import_module(module), name)
    executor: Executor = executor_class(target, upload=upload) if spec.supports_upload else executor_class(target)
    return executor


def last_line(text: object) -> str:
    """Return the last line of an error message or of a command's output, which has the reason."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
