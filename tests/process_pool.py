"""Programs forked from a process that has imported everything: a start takes milliseconds instead of seconds.

Such a program is `python -m polybench`, or another module of polybench. It is a child of the process that starts it,
with its own environment, files and signals, so it can crash, hang and be killed like any other. It has a pool of its
own, which forks its workers. A program that would start otherwise, with another interpreter or with other variables of
Python, the linker or the locale, is a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_MAX_REQUEST_BYTES = 1 << 20
_MAX_DESCRIPTORS = 16
_FREE_DESCRIPTOR = 200
_PREFIXES = ("PYTHON", "LD_", "LC_", "LANG")
_APPLIED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of Python that a forked process applies itself."""
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
_WORKER = "polybench.worker"

MODULES = (
    "memray",
    "polybench.cli.live",
    "polybench.cluster.node",
    "polybench.engines.fake.engine",
    "polybench.engines.reference.engine",
    "polybench.parity_check.check",
    "polybench.run",
    "polybench.worker.handler",
    "polybench.worker.ranks",
    "scipy.stats",
    "tests.small_synthetic",
    "typer.rich_utils",
)

Popen = subprocess.Popen
"""Starts new processes, even while others are forked."""

_START = inspect.signature(Popen._execute_child)  # type: ignore[attr-defined]
_DEFAULTS = {
    "shell": False, "preexec_fn": None, "process_group": -1, "gid": None, "gids": None, "uid": None, "umask": -1,
}  # fmt: skip


class ProcessPool:
    """The connection to a process from which others are forked; `connect` is called at the first one."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect, self._lock = connect, threading.Lock()
        self._environment = dict(os.environ)

    @functools.cached_property
    def _socket(self) -> socket.socket:
        return self._connect()

    def can_fork(self, start: SimpleNamespace) -> bool:
        """Return whether a new process would import the same at its start."""
        if any(getattr(start, name) != value for name, value in _DEFAULTS.items()) or _module(start.args) is None:
            return False
        env = _environment(start)
        own, new = (
            {name: value for name, value in one.items() if name.startswith(_PREFIXES) and name not in _APPLIED}
            for one in (self._environment, env)
        )
        folders = {*_python_path(env)} - {*_python_path(self._environment)}
        starts_otherwise = any(one for folder in folders for one in Path(folder).glob("*customize.py*"))
        return own == new and not starts_otherwise

    def fork(self, start: SimpleNamespace) -> int:
        """Fork a process; return its ID."""
        standard = [
            number if given == -1 else given
            for number, given in enumerate((start.p2cread, start.c2pwrite, start.errwrite))
        ]
        request = {
            "module": _module(start.args),
            "safe_path": "-P" in start.args,
            "arguments": start.args[start.args.index("-m") + 2 :],
            "env": _environment(start),
            "folder": os.fspath(start.cwd or Path.cwd()),
            "cpus": [*os.sched_getaffinity(0)],
            "limits": [(number, resource.getrlimit(number)[0]) for number in _LIMITS],
            "new_session": start.start_new_session,
            "descriptors": [*range(3), *start.pass_fds],
        }
        text = json.dumps(request, default=os.fspath).encode("utf-8", "surrogateescape")
        with self._lock, _adopting():
            socket.send_fds(self._socket, [text], [*standard, *start.pass_fds])
            return int(self._socket.recv(32))

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """Fork the programs of polybench that `subprocess` starts."""
        with mock.patch.object(subprocess, "Popen", type("Popen", (_ForkedPopen,), {"pool": self})):
            yield


class _ForkedPopen(Popen):  # type: ignore[type-arg]
    pool: ProcessPool

    def _execute_child(self, *arguments: Any) -> None:
        start = SimpleNamespace(**_START.bind(self, *arguments).arguments)
        if not self.pool.can_fork(start):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid = self.pool.fork(start)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            start.p2cread, start.p2cwrite, start.c2pread, start.c2pwrite, start.errread, start.errwrite
        )


def start_server(modules: Sequence[str]) -> socket.socket:
    """Start a process that imports these modules, if they are installed, and forks others; return the connection."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_python_path(os.environ))}
    with other:
        command = [sys.executable, "-P", __file__, str(other.fileno()), *modules]
        process = Popen(command, env=environment, pass_fds=[other.fileno()])

    def close() -> None:
        own.close()
        process.wait()

    atexit.register(close)
    return own


def _module(command: Any) -> str | None:
    """Return the module of this repository that a command runs with this interpreter; None for other commands."""
    words = [command] if isinstance(command, str | bytes | os.PathLike) else [*command]
    options = words[1 : words.index("-m")] if "-m" in words else ["no module"]
    if words[0] != sys.executable or {*options} - {"-P"}:
        return None
    module = str(words[len(options) + 2])
    return module if module.partition(".")[0] in {"polybench", "tests"} else None


def _environment(start: SimpleNamespace) -> dict[str, str]:
    return dict(os.environ if start.env is None else start.env)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """Return PYTHONPATH after the folder of polybench, which is on the path of every process."""
    return [*filter(None, dict.fromkeys((_REPOSITORY, *environment.get("PYTHONPATH", "").split(os.pathsep))))]


_REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - as in PYTHONPATH


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Let processes whose parent ends become children of this one."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _serve(requests: socket.socket) -> None:
    """Fork a process at each request, until the other end closes."""
    while True:
        text, descriptors, *_ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, _MAX_DESCRIPTORS)
        if not text:
            return
        if (child := os.fork()) == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            _run(requests, json.loads(text.decode("utf-8", "surrogateescape")), descriptors)
        os.waitpid(child, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _run(requests: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the module in this process, and end it as the interpreter would."""
    if request["new_session"]:
        os.setsid()
    own_pool = None if request["module"] == _WORKER else _fork_server([requests.fileno(), *descriptors])
    with socket.socket(fileno=_free(requests.fileno())) as starter:
        requests.close()
        _move(descriptors, request["descriptors"])
        _become(request)
        starter.send(str(os.getpid()).encode())  # whoever knows the process finds its files
    code = 1
    try:
        with own_pool.replacing() if own_pool else contextlib.nullcontext():
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _fork_server(unused: Sequence[int]) -> ProcessPool:
    """Fork the process from which those of this one are forked: they then load the same code as any others."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for descriptor in (own.detach(), *unused):
            os.close(descriptor)
        _serve(other)
        os._exit(0)
    other.close()
    with own:
        connection = socket.socket(fileno=_free(own.fileno()))
    return ProcessPool(lambda: connection)


def _move(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors these numbers."""
    free = [*map(_free, descriptors)]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(free, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _free(descriptor: int) -> int:
    """Return another number for a descriptor, one that no program has at its start."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_DESCRIPTOR)


def _become(request: dict[str, Any]) -> None:
    """Set what a new process gets from the one that starts it."""
    own_path = _python_path(os.environ)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    first = [] if request["safe_path"] else [request["folder"]]
    sys.path[:] = [*first, *_python_path(os.environ), *(folder for folder in sys.path if folder not in own_path)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv[1:] = request["arguments"]
    os.sched_setaffinity(0, request["cpus"])
    for number, soft in request["limits"]:
        resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = open(0, encoding=sys.stdin.encoding, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writer(1, sys.stdout, line_buffering=os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, sys.stderr, line_buffering=True)  # type: ignore[misc]


def _writer(number: int, like: Any, *, line_buffering: bool) -> Any:
    """Return a text stream for a descriptor, as Python opens it at its start."""
    binary = open(number, "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(binary, like.encoding, like.errors, line_buffering=line_buffering)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # the collector of a forked process copies no page of these objects
    _serve(socket.socket(fileno=int(sys.argv[1])))
