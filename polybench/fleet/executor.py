"""What runs node programs on machines: the protocol, and the table of them by the spelling of `--on`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.messages import Message, Task


class Lost(msgspec.Struct, frozen=True):
    """A node program ended without its last message: its machine went away, or somebody killed it."""

    reason: str
    again: bool = True
    """Whether there may be another machine of the class."""


class Event(NamedTuple):
    """What a group's node program said."""

    label: str
    message: Message | Lost


class Place(NamedTuple):
    """A machine that is there: what has a node program run on it."""

    group: MachineGroup
    hostname: str | None = None
    """For `start`, where several machines are of this class."""


class Executor(Protocol):
    """Runs the node program (`fleet.node`) of each group on a machine that does nothing else meanwhile.

    Constructed with what was given as `--on`; then `check`, `start` for each group, and `events` until each
    has come to its end (Finished, Refused or Lost). A group that was Lost may be started again, with what
    was kept. `close` comes last, whatever happened.
    """

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Find out, within 10 seconds and before anything is started, what would keep groups from running.

        Returns:
            Warnings.

        Raises:
            BadInput: nobody is there, is of another version, or has no machine of a class.
        """
        ...

    def machines(self) -> list[Place]:
        """Every machine that a study could be given, or of many alike one; labels differ.

        Raises:
            BadInput: nobody is there.
        """
        ...

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        """Have the node program do its task, now or as soon as a machine of the class is free; does not wait.

        Args:
            group: where.
            task: what.
            near: host name of the machine that is wanted: where it began it can be resumed.
        """
        ...

    def events(self, seconds: float) -> list[Event]:
        """What has come from all groups, in the order of each; waits so long at most for the first.

        Waits inside of `core.interrupts.waiting`.
        """
        ...

    def stop(self) -> None:
        """Tell every node program to Stop, and those that wait for a machine not to begin (they are Lost)."""
        ...

    def close(self) -> None:
        """End whatever still runs, on every machine, at once."""
        ...


EXECUTORS: dict[str, str] = {
    "local": "polybench.fleet.local:LocalExecutor",
    "auto": "polybench.fleet.ray_executor:RayExecutor",
    "ray": "polybench.fleet.ray_executor:RayExecutor",
    "slurm": "polybench.fleet.slurm:SlurmExecutor",
}
"""`--on` up to a colon, and where its class is. ADD AN EXECUTOR here."""


SHIPPING = ("auto", "ray")
"""Those whose machines can be sent this polybench: their classes take `ship`."""


def can_ship(on: str) -> bool:
    """Whether machines that are reached like this can be sent this polybench."""
    return on.partition(":")[0] in SHIPPING


def check_on(on: str, *, ship: bool = False) -> None:
    """Whether there is such an executor, without asking anybody.

    Raises:
        BadInput: none is called so, or it cannot ship.
    """
    spelling = on.partition(":")[0]
    if spelling not in EXECUTORS:
        spelled = ", ".join(EXECUTORS)
        raise BadInput(f"--on {on}: polybench does not know such machines; known are: {spelled}")
    if ship and not can_ship(on):
        raise BadInput(f"--ship: --on {spelling} runs the polybench of this machine; leave --ship out")


def executor(on: str, *, ship: bool = False) -> Executor:
    """The executor that `--on` names; it gets the whole text.

    Args:
        on: of `--on`.
        ship: have this polybench run there, whatever is installed.

    Raises:
        BadInput: none is called so, or it cannot ship.
    """
    check_on(on, ship=ship)
    module, _, name = EXECUTORS[on.partition(":")[0]].partition(":")
    more = {"ship": True} if ship else {}
    made: Executor = getattr(importlib.import_module(module), name)(on, **more)
    return made
