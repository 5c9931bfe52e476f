"""Runs programs of the user, and leaves nothing of them behind: no process, no large output, no endless wait.

This file is also the program that supervises one of them: `supervisor.py PARENT_PID PROGRAM ARGUMENT...`. If it
is terminated, or its parent dies, it kills the program with all its descendants, daemons included.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_GRACE_SECONDS = 5.0
_MAX_OUTPUT_BYTES = 1 << 20
_TIMED_OUT = 124
"""Exit code, as of timeout(1)."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def run(
    command: Sequence[str], seconds: float, *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program, which may be anything; if it takes or prints too much, that is its error output."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(os.getpid()), *command],
            env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
        )  # fmt: skip
        code, problem = _TIMED_OUT, f"no answer within {seconds:g} s"
        try:
            code, problem = process.wait(seconds), ""
        except subprocess.TimeoutExpired:
            pass
        finally:
            for number in (signal.SIGTERM, signal.SIGCONT):  # the supervisor kills the program, even if stopped
                process.send_signal(number)
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # the kernel then kills the program
                process.wait()
        texts = [os.pread(file.fileno(), _MAX_OUTPUT_BYTES, 0) for file in (output, errors)]
    if max(map(len, texts)) == _MAX_OUTPUT_BYTES:
        code, problem = code or 1, f"it printed more than {_MAX_OUTPUT_BYTES >> 20} MiB"
    out, err = (text.decode("utf-8", "replace") for text in texts)
    return subprocess.CompletedProcess(command, code, out, problem or err)


def main(parent: str, *command: str) -> int:
    """Run the command, and return its exit code, 128 plus a signal as in a shell."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans get this process as their parent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        return 1  # it died before the call above
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_OUTPUT_BYTES, _MAX_OUTPUT_BYTES))
    try:
        program = os.fork()
        if program == 0:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _execute(command)
        code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_descendants()
    return code if code >= 0 else 128 - code


def _execute(command: tuple[str, ...]) -> None:
    """Replace this process by the command."""
    for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, str(error.strerror).encode())
    os._exit(127)


def _kill_descendants() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(pid) for pid in children.read_text().split()]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)  # its children become those of this process
        for pid in pids:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
