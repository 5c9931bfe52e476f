"""What runs on a node of a Ray cluster: an actor that has the node to itself, and in it the node program.

Ray sends this by its name: the polybench that is installed there runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.core.errors import BadInput
from polybench.fleet.executor import Lost
from polybench.fleet.messages import Message, Program, Refused, Stage, Task
from polybench.fleet.node_process import NodeProcess
from polybench.fleet.packed import is_there, kept, unpack
from polybench.fleet.program import this_program

_RAYS_OWN = ("RAY_", "OMP_NUM_THREADS")
"""What Ray sets for its workers, which is nothing to a study."""


class Facts(NamedTuple):
    """What a node is, before it is used."""

    program: Program
    less_priority: bool
    """Whether what Ray starts there has less than Ray itself, and may not get it back."""


def facts() -> Facts:
    """Of this node; whoever imports this has the libraries of the driver's polybench."""
    return Facts(this_program(), not as_important_as_ray())


def as_important_as_ray() -> bool:
    """Give this process the priority of its parent, the raylet; whether it has it now."""
    wanted = os.getpriority(os.PRIO_PROCESS, os.getppid())
    if os.getpriority(os.PRIO_PROCESS, 0) > wanted:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, wanted)
    return os.getpriority(os.PRIO_PROCESS, 0) <= wanted


class Data(NamedTuple):
    """Images that lie at a path, where the driver is."""

    path: str
    sha256: str


class Wanted(NamedTuple):
    """The images are not here: send them."""


WANTED = Wanted()


def _place(data: Data) -> str | None:
    """Where they are here: at their own path, or where they were sent to before; None where they are not."""
    for place in (Path(data.path), kept(Path(data.path).name, data.sha256)):
        if is_there(place, data.sha256):
            return str(place)
    return None


class RayNode:
    """An actor: one study at a time, while the driver asks for what it says."""

    def __init__(self) -> None:
        self._process: NodeProcess | None = None
        self._own: list[Message | Lost | Wanted] = []
        self._waits_for_data: Task | None = None
        as_important_as_ray()

    def begin(self, task: Task, data: Data | None) -> None:
        """Start the node program, or ask for its data first where they are not here."""
        with self._or_refused():
            place = None if data is None else _place(data)
            if data is None or place is not None:
                self._start(task, place)
            else:
                self._waits_for_data = task
                self._own += [Stage("receiving images"), WANTED]

    def supply(self, content: bytes, data: Data) -> None:
        """Start the node program with data that were sent."""
        assert self._waits_for_data is not None
        with self._or_refused():
            self._start(self._waits_for_data, str(unpack(content, Path(data.path).name, data.sha256)))

    @contextlib.contextmanager
    def _or_refused(self) -> Iterator[None]:
        """Nobody asks for what `begin` and `supply` raise: what is not said would be waited for."""
        try:
            yield
        except (BadInput, OSError) as error:
            self._own.append(Refused(str(error), BadInput.exit_code))

    def _start(self, task: Task, place: str | None) -> None:
        if place is not None:
            task = msgspec.structs.replace(task, study=msgspec.structs.replace(task.study, data=place))
        self._process = NodeProcess(task, environment(os.environ))

    def next(self, seconds: float) -> list[Message | Lost | Wanted]:
        """What there is to say since, waiting so long for the first of it."""
        if self._own:
            own, self._own = self._own, []
            return own
        if self._process is None:  # it is about to start
            time.sleep(min(0.1, seconds))
            return []
        return [*self._process.receive()] if self._process.readable(seconds) else []

    def stop(self) -> None:
        """Have it end as Ctrl-C does."""
        if self._process is not None:
            self._process.stop()


def environment(rays: Mapping[str, str]) -> dict[str, str]:
    """The node's own environment, as far as a worker of Ray still has it."""
    return {name: value for name, value in rays.items() if not name.startswith(_RAYS_OWN)}
