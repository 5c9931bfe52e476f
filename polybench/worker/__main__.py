"""The child's entry, `python -m polybench.worker`: loads ONE engine and obeys its parent's requests.

Requests and answers have pipes of their own, so whatever a library prints cannot corrupt them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from polybench.core.job import PINNED

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["POLYBENCH_PARENT"]):
        sys.exit("the parent is gone")  # it died before the line above


def bind_to_cpus() -> None:
    """Run on the study's CPUs alone, where it has chosen some; threads and children inherit that."""
    if chosen := os.environ.get(PINNED):
        os.sched_setaffinity(0, map(int, chosen.split(",")))


def main() -> None:
    """Serve until Close or until the parent closes its end."""
    die_with_parent()
    bind_to_cpus()
    # Late, since NumPy starts threads, which stay where their parent was when it started them.
    from polybench.wire.messages import Answer, Close, encoder, request_decoder
    from polybench.worker.handler import Worker
    from polybench.worker.ranks import Leader

    process_seconds = time.monotonic() - float(os.environ["POLYBENCH_STARTED"])
    descriptors = [int(os.environ[name]) for name in ("POLYBENCH_REQUESTS_FD", "POLYBENCH_ANSWERS_FD")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    requests, answers = (os.fdopen(fd, mode) for fd, mode in zip(descriptors, ("rb", "wb"), strict=True))

    def tell(answer: Answer) -> None:
        answers.write(encoder.encode(answer) + b"\n")
        answers.flush()

    leader = Leader(Worker(process_seconds), tell)
    for line in requests:
        request = request_decoder.decode(line)
        tell(leader.answer(request))
        if isinstance(request, Close):
            break


if __name__ == "__main__":
    main()
