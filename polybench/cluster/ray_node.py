"""Code on a node of a Ray cluster: an actor that uses the whole node and runs the node program.

Ray refers to this module by name, so the polybench that is installed on the node runs.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Fingerprint, Message, Task, current_fingerprint

_RAY_VARIABLES = ("RAY_", "OMP_NUM_THREADS")
"""Prefixes of the variables that Ray sets for its workers; a study must not see them."""


class NodeInfo(NamedTuple):
    """Properties of a node before its use."""

    fingerprint: Fingerprint
    has_lower_priority: bool
    """True if Ray lowers the priority of its workers and they cannot restore it."""


def node_info() -> NodeInfo:
    """Describe this node; importing this module requires the libraries of the driver's polybench."""
    return NodeInfo(current_fingerprint(), not match_ray_priority())


def match_ray_priority() -> bool:
    """Give this process the priority of its parent, the raylet; return True if it has it."""
    priority = os.getpriority(os.PRIO_PROCESS, os.getppid())
    if os.getpriority(os.PRIO_PROCESS, 0) > priority:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, priority)
    return os.getpriority(os.PRIO_PROCESS, 0) <= priority


class NodeActor:
    """Actor that runs the node program; the driver polls its messages."""

    def __init__(self, task: Task) -> None:
        match_ray_priority()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_RAY_VARIABLES)}
        self._process = NodeProcess(task, environment)

    def next_messages(self, seconds: float) -> list[Message]:
        """Return new messages, waiting at most `seconds` for the first one."""
        return self._process.receive() if self._process.is_readable(seconds) else []

    def stop(self) -> None:
        """Stop the node program as Ctrl-C does."""
        self._process.stop()
