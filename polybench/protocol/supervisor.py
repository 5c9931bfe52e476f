"""Runs a program of the user, and leaves nothing of it behind: no process and no large output.

Started as a file, which imports nothing of polybench: `supervisor.py PARENT_PID MAX_BYTES PROGRAM ARGUMENT...`. If it
is terminated, or its parent dies, it kills the program with all its descendants, daemons included.
"""

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def main(parent: str, max_bytes: str, *command: str) -> int:
    """Run the command, and return its exit code, 128 plus a signal as in a shell."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans get this process as their parent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        return 1  # it died before the call above
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_bytes), int(max_bytes)))
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
        os.execv(command[0], command)
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
