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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import platformdirs

from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Fingerprint, Message, Rejected, StageChanged, Task, current_fingerprint
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


class DataRequest(NamedTuple):
    """Request to send the images, which this node lacks."""


class NodeActor:
    """Actor that runs one study at a time; the driver polls its messages."""

    def __init__(self) -> None:
        self._process: NodeProcess | None = None
        self._pending: list[Message | DataRequest] = []
        self._waiting_task: Task | None = None
        match_ray_priority()

    def start(self, task: Task, data: Data | None) -> None:
        """Start the node program, or first request its data if this node lacks them."""
        with self._report_errors():
            if data is None:
                self._start_process(task)
                return
            for path in (Path(data.path), cached_path(Path(data.path).name, data.sha256)):
                if is_cached(path, data.sha256):
                    self._start_process(task, path)
                    return
            self._waiting_task = task
            self._pending += [StageChanged("receiving images"), DataRequest()]

    def send_data(self, content: bytes, data: Data) -> None:
        """Start the node program with the received data."""
        assert self._waiting_task is not None
        with self._report_errors():
            self._start_process(self._waiting_task, unpack(content, Path(data.path).name, data.sha256))

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Turn errors into messages, since the driver does not wait for the results of calls."""
        try:
            yield
        except (BadInput, OSError) as error:
            self._pending.append(Rejected(str(error), BadInput.exit_code))

    def _start_process(self, task: Task, data: Path | None = None) -> None:
        if data is not None:
            task = msgspec.structs.replace(task, study=msgspec.structs.replace(task.study, data=str(data)))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_RAY_VARIABLES)}
        self._process = NodeProcess(task, environment)

    def next_messages(self, seconds: float) -> list[Message | DataRequest]:
        """Return new messages, waiting at most `seconds` for the first one."""
        if self._pending:
            pending, self._pending = self._pending, []
            return pending
        if self._process is None:  # not started yet
            time.sleep(min(0.1, seconds))
            return []
        return list(self._process.receive()) if self._process.is_readable(seconds) else []

    def stop(self) -> None:
        """Stop the node program as Ctrl-C does."""
        if self._process is not None:
            self._process.stop()


MAX_UPLOAD_BYTES = 4 << 30
"""Maximum size of an upload; larger data should be on every machine, or on a shared file system."""

_CACHE_FOLDER = "cluster-data"
"""Folder in the receiving machine's cache; data with a known hash are not sent again."""


def content_sha256(path: Path) -> str:
    """Hash a file's bytes, or the names and bytes of a folder's files, independent of their order and times.

    Raises:
        BadInput: a link in the folder points to a parent folder.
    """
    if path.is_file():
        return sha256(path)
    digest = hashlib.sha256()
    for one in _files(path):
        digest.update(f"{one.relative_to(path).as_posix()}\0{sha256(one)}\n".encode())
    return digest.hexdigest()


def pack(path: Path) -> bytes:
    """Return the file or folder as a tar archive.

    Raises:
        BadInput: it is too large to send.
    """
    size = sum(one.stat().st_size for one in ([path] if path.is_file() else _files(path)))
    if size > MAX_UPLOAD_BYTES:
        raise BadInput(
            f"--data {path}: {size / 2**30:.1f} GiB are too large to send; copy them to the same path on every machine"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:  # as the hash does
        tar.add(path, arcname=path.name)
    return buffer.getvalue()


def cached_path(name: str, digest: str) -> Path:
    """Return the path for received data, whether they exist or not."""
    return platformdirs.user_cache_path("polybench") / _CACHE_FOLDER / digest[:16] / name


def is_cached(path: Path, digest: str) -> bool:
    """Return True if the path exists and has this hash."""
    return path.exists() and content_sha256(path) == digest


def unpack(content: bytes, name: str, digest: str) -> Path:
    """Unpack received data and verify their hash.

    Raises:
        BadInput: the SHA-256 differs, or the disk is too small.
    """
    path = cached_path(name, digest)
    if is_cached(path, digest):
        return path
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                tar.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BadInput(f"cannot write the received images: {error}") from error
        received_digest = content_sha256(Path(folder) / name)
        if received_digest != digest:
            raise BadInput(f"the received images are damaged: SHA-256 {received_digest[:16]}: expected {digest[:16]}")
        if not is_cached(path, digest):
            shutil.rmtree(path.parent, ignore_errors=True)
            try:
                Path(folder).rename(path.parent)
                Path(folder).mkdir()  # the context removes it
            except OSError as error:
                if not is_cached(path, digest):  # by another node with the same home folder
                    raise BadInput(f"cannot write the received images: {error}") from error
    return path


def _files(folder: Path) -> list[Path]:
    """Return all readable files below the folder, following links to folders as the image reader does."""
    return sorted(_files_below(folder, frozenset()))


def _files_below(folder: Path, ancestors: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    if real in ancestors:
        raise BadInput(f"{folder} is a link to a parent folder; remove it")
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files_below(path, ancestors | {real})
        elif path.is_file():
            yield path
