"""Processes forked from one that has imported everything: a start takes milliseconds instead of seconds.

Such a process runs `python -m MODULE`. It is a child of the test's process, in a session of its own, with its own
environment and pipes, so it can crash, hang and be killed like any other. One that would start otherwise, with another
interpreter or with other variables of Python or the linker, is a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
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
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_MAX_REQUEST_BYTES = 1 << 20
_PREFIXES = ("PYTHON", "LD_")
_APPLIED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of Python that a forked process applies itself."""
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
_PIPES = ("POLYBENCH_REQUESTS_FD", "POLYBENCH_RESPONSES_FD")

WORKER_MODULES = (
    "memray",
    "polybench.engines.fake.engine",
    "polybench.engines.reference.engine",
    "polybench.parity_check.check",
    "polybench.worker.handler",
    "polybench.worker.ranks",
)


class PooledProcess:
    """The part of `subprocess.Popen` that polybench uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 0)
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            else:
                time.sleep(0.002)
        return self.returncode


class ProcessPool:
    """The process from which others are forked; `modules` are imported there, if they are installed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules, self._lock = modules, threading.Lock()
        self._environment = dict(os.environ)

    @functools.cached_property
    def _socket(self) -> socket.socket:
        """The connection to the process, which starts with the first one that is forked."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(other.fileno()), *self._modules],
                env=self._environment | {"PYTHONPATH": os.pathsep.join(_python_path(self._environment))},
                pass_fds=[other.fileno()],
            )

        def close() -> None:
            own.close()
            process.wait()

        atexit.register(close)
        return own

    def _can_start(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return whether a new process would import the same at its start."""
        own, new = (
            {name: value for name, value in one.items() if name.startswith(_PREFIXES) and name not in _APPLIED}
            for one in (self._environment, env)
        )
        folders = {*_python_path(env)} - {*_python_path(self._environment)}
        starts_otherwise = any(one for folder in folders for one in Path(folder).glob("*customize.py*"))
        return command[0] == sys.executable and own == new and not starts_otherwise

    def start(self, command: Sequence[str], *, env: Mapping[str, str], **arguments: Any) -> Any:
        """Start a process; arguments are those of `subprocess.Popen`."""
        if not self._can_start(command, env):
            return subprocess.Popen(command, env=env, **arguments)
        _, _, _, module, *words = command
        request = {
            "module": module,
            "arguments": words,
            "env": dict(env),
            "folder": str(Path.cwd()),
            "cpus": [*os.sched_getaffinity(0)],
            "limits": [(number, resource.getrlimit(number)[0]) for number in _LIMITS],
        }
        text = json.dumps(request).encode("utf-8", "surrogateescape")
        with self._lock, _adopting():
            descriptors = [arguments["stdout"].fileno(), *arguments.get("pass_fds", ())]
            socket.send_fds(self._socket, [text], descriptors)
            return PooledProcess(int(self._socket.recv(32)))

    @contextlib.contextmanager
    def replacing(self, *modules: str) -> Iterator[None]:
        """Start the processes of these modules from the pool."""
        names = {"DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
        replaced = SimpleNamespace(Popen=self.start, **names)
        with contextlib.ExitStack() as stack:
            for module in modules:
                stack.enter_context(mock.patch(f"{module}.subprocess", replaced))
            yield


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
        text, descriptors, *_ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 1 + len(_PIPES))
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
    os.setsid()
    requests.send(str(os.getpid()).encode())
    requests.close()
    log, *pipes = descriptors
    own_path = _python_path(os.environ)
    os.environ.clear()
    os.environ.update(request["env"] | dict(zip(_PIPES, map(str, pipes), strict=False)))
    sys.path[:] = [*_python_path(os.environ), *(folder for folder in sys.path if folder not in own_path)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cpus"])
    for number, soft in request["limits"]:
        resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
    for standard, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(descriptor, standard)
    sys.argv[1:] = request["arguments"]
    code = 1
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # the collector of a forked process copies no page of these objects
    _serve(socket.socket(fileno=int(sys.argv[1])))
