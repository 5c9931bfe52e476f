"""Entry point of a worker process: load one engine and serve the requests of the parent.

Requests and responses have their own pipes, so the output of libraries cannot corrupt them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time

from polybench.engines.job import PINNED

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["POLYBENCH_PARENT"]):
        sys.exit("the parent process has ended")  # before the call above


def bind_to_cpus() -> None:
    """Bind this process to the study's CPUs, if it has any; threads and children inherit the affinity."""
    if cpus := os.environ.get(PINNED):
        os.sched_setaffinity(0, map(int, cpus.split(",")))


def main() -> None:
    """Serve requests until Close, or until the parent closes the pipe."""
    die_with_parent()
    bind_to_cpus()
    # Imported after binding, because NumPy starts threads, which inherit the CPU affinity at their start.
    from polybench.protocol import calls
    from polybench.worker.handler import Worker
    from polybench.worker.ranks import RankCoordinator

    process_seconds = time.monotonic() - float(os.environ["POLYBENCH_STARTED"])
    descriptors = [int(os.environ[name]) for name in ("POLYBENCH_REQUESTS_FD", "POLYBENCH_RESPONSES_FD")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    requests, responses = (os.fdopen(fd, mode) for fd, mode in zip(descriptors, ("rb", "wb"), strict=True))

    def send(reply: calls.Reply) -> None:
        responses.write(calls.encode(reply))
        responses.flush()

    coordinator = RankCoordinator(Worker(process_seconds), send)
    for line in requests:
        request = calls.decode_request(line)
        send(coordinator.handle(request))
        if request.call is calls.close:
            break
    end_at_once()


def end_at_once() -> None:
    """End without freeing every object of the interpreter, which takes a framework up to a second."""
    atexit._run_exitfuncs()  # of frameworks, and of coverage's measurement
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
