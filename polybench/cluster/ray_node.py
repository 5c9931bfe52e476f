"""Code on a node of a Ray cluster: an actor that uses the whole node and runs the node program.

Ray refers to this module by name, so the polybench that is installed on the node runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.cluster.data_transfer import cached_path, is_cached, unpack
from polybench.cluster.executor import NodeLost
from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Fingerprint, Message, Rejected, StageChanged, Task, current_fingerprint
from polybench.errors import BadInput

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


class Data(NamedTuple):
    """Path of images on the driver's machine, and their hash."""

    path: str
    sha256: str


class DataRequest(NamedTuple):
    """Request to send the images, which this node lacks."""


DATA_REQUEST = DataRequest()


def _find_data(data: Data) -> str | None:
    """Return the path of the images on this node: the driver's path or the cache; None if they are missing."""
    for path in (Path(data.path), cached_path(Path(data.path).name, data.sha256)):
        if is_cached(path, data.sha256):
            return str(path)
    return None


class NodeActor:
    """Actor that runs one study at a time; the driver polls its messages."""

    def __init__(self) -> None:
        self._process: NodeProcess | None = None
        self._pending: list[Message | NodeLost | DataRequest] = []
        self._waiting_task: Task | None = None
        match_ray_priority()

    def start(self, task: Task, data: Data | None) -> None:
        """Start the node program, or first request its data if this node lacks them."""
        with self._report_errors():
            data_path = None if data is None else _find_data(data)
            if data is None or data_path is not None:
                self._start_process(task, data_path)
            else:
                self._waiting_task = task
                self._pending += [StageChanged("receiving images"), DATA_REQUEST]

    def send_data(self, content: bytes, data: Data) -> None:
        """Start the node program with the received data."""
        assert self._waiting_task is not None
        with self._report_errors():
            self._start_process(self._waiting_task, str(unpack(content, Path(data.path).name, data.sha256)))

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Turn errors of `start` and `send_data` into messages, since the driver does not wait for their
        results.
        """
        try:
            yield
        except (BadInput, OSError) as error:
            self._pending.append(Rejected(str(error), BadInput.exit_code))

    def _start_process(self, task: Task, data_path: str | None) -> None:
        if data_path is not None:
            task = msgspec.structs.replace(task, study=msgspec.structs.replace(task.study, data=data_path))
        self._process = NodeProcess(task, node_environment(os.environ))

    def next_messages(self, seconds: float) -> list[Message | NodeLost | DataRequest]:
        """Return new messages, waiting at most `seconds` for the first one."""
        if self._pending:
            pending, self._pending = self._pending, []
            return pending
        if self._process is None:  # not started yet
            time.sleep(min(0.1, seconds))
            return []
        return [*self._process.receive()] if self._process.is_readable(seconds) else []

    def stop(self) -> None:
        """Stop the node program as Ctrl-C does."""
        if self._process is not None:
            self._process.stop()


def node_environment(worker_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the node's own environment, without the variables of Ray's workers."""
    return {name: value for name, value in worker_environment.items() if not name.startswith(_RAY_VARIABLES)}
