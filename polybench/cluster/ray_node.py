"""Code on a node of a Ray cluster: an actor that uses the whole node and runs the node program.

Ray refers to this module by name, so the polybench that is installed on the node runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec
import platformdirs

from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Fingerprint, Message, Task, current_fingerprint
from polybench.data import data_files
from polybench.data.file_cache import sha256
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


class NodeActor:
    """Actor that runs the node program; the driver awaits its calls one after the other, apart from `stop`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        match_ray_priority()

    def start(self, data: Data | None, content: bytes | None = None) -> list[Message] | None:
        """Start the node program; returns no message, or None if this node lacks the data and needs their content."""
        task = self._task
        if data is not None:
            path = find_data(data) if content is None else unpack(content, data)
            if path is None:
                return None
            task = msgspec.structs.replace(task, study=msgspec.structs.replace(task.study, data=str(path)))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_RAY_VARIABLES)}
        self._process = NodeProcess(task, environment)
        return []

    def next_messages(self, seconds: float) -> list[Message]:
        """Return new messages, waiting at most `seconds` for the first one."""
        return self._process.receive() if self._process.is_readable(seconds) else []

    def stop(self) -> None:
        """Stop the node program as Ctrl-C does."""
        self._process.stop()


MAX_UPLOAD_BYTES = 4 << 30
"""Maximum size of an upload; larger data should be on every machine, or on a shared file system."""

_CACHE_FOLDER = "cluster-data"
"""Folder in the receiving machine's cache; data with a known hash are not sent again."""


def content_sha256(path: Path) -> str:
    """Hash a file's bytes, or the names and bytes of a data set's files, independent of their order and times.

    Raises:
        BadInput: there is no data set.
    """
    if path.is_file():
        return sha256(path)
    digest = hashlib.sha256()
    for one in data_files(path):
        digest.update(f"{one.relative_to(path).as_posix()}\0{sha256(one)}\n".encode())
    return digest.hexdigest()


def pack(path: Path) -> bytes:
    """Return a data set as a tar archive, without other files of its folder, such as `.env` and keys.

    Raises:
        BadInput: it is too large to send.
    """
    files = data_files(path)
    size = sum(one.stat().st_size for one in files)
    if size > MAX_UPLOAD_BYTES:
        raise BadInput(
            f"--data {path}: {size / 2**30:.1f} GiB are too large to send; copy them to the same path on every machine"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:  # as the hash does
        for one in files:
            tar.add(one, arcname=path.name / one.relative_to(path), recursive=False)
    return buffer.getvalue()


def cached_path(data: Data) -> Path:
    """Return the path for received data, whether they exist or not."""
    return platformdirs.user_cache_path("polybench") / _CACHE_FOLDER / data.sha256[:16] / Path(data.path).name


def find_data(data: Data) -> Path | None:
    """Return where this node has the data: at the driver's path, or in the cache."""
    return next((path for path in (Path(data.path), cached_path(data)) if _is_intact(path, data)), None)


def _is_intact(path: Path, data: Data) -> bool:
    with contextlib.suppress(BadInput):
        return path.exists() and content_sha256(path) == data.sha256
    return False


def unpack(content: bytes, data: Data) -> Path:
    """Unpack received data and verify their hash.

    Raises:
        BadInput: the SHA-256 differs, or the disk is too small.
    """
    path = cached_path(data)
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as name:
        received = Path(name) / "received"
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                tar.extractall(received, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BadInput(f"cannot write the received images: {error}") from error
        digest = content_sha256(received / path.name)
        if digest != data.sha256:
            raise BadInput(f"the received images are damaged: SHA-256 {digest[:16]}: expected {data.sha256[:16]}")
        if not _is_intact(path, data):  # otherwise another node with the same home folder was faster
            shutil.rmtree(path.parent, ignore_errors=True)
            received.rename(path.parent)
    return path
