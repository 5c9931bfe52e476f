"""A worker that trains with others: it starts them, and has them obey each request beside it.

They are workers as it is, which die with it. What goes wrong in one of them ends all, with its reason: the
others wait for it in an exchange of gradients, which may take for ever.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import PINNED, RANKS, Rank
from polybench.wire.messages import Answer, Closed, Evaluate, Failed, Load, Missing, Request
from polybench.wire.process import WorkerProcess
from polybench.wire.training_messages import KeepTraining
from polybench.worker.handler import Worker
from polybench.worker.together import together

_GRACE_SECONDS = 2.0
"""For the others, once one has failed: mostly they fail as well, and say why."""

_STANDARD_ERROR = Path("/proc/self/fd/2")


class Leader:
    """Rank 0, and those that it leads; a worker of one process has none.

    Args:
        worker: its own.
        tell: sends an answer to the parent, where its own worker cannot any more.
    """

    def __init__(self, worker: Worker, tell: Callable[[Answer], None]) -> None:
        self._worker, self._tell = worker, tell
        _, *self._shares = os.environ.get(RANKS, "").split(";")
        self._ranks: list[WorkerProcess] = []

    def answer(self, request: Request) -> Answer:
        """Obey, all of them at the same time; the answer is of all."""
        if self._shares and isinstance(request, Load) and not self._ranks:
            self._start()
        # Whoever evaluates has no need of the others, and weights and optimizer are the same in all.
        if not self._ranks or isinstance(request, Evaluate | KeepTraining):
            return self._worker.answer(request)
        answered = threading.Event()
        with ThreadPoolExecutor(len(self._ranks)) as pool:
            others = [
                pool.submit(self._of, number, self._told(request, number), answered)
                for number in range(1, self._count)
            ]
            own = self._worker.answer(self._told(request, 0))
            answered.set()
            if isinstance(own, Failed | Missing):
                return self._why(own, others)
            return self._of_all(own, [other.result() for other in others])

    @property
    def _count(self) -> int:
        return 1 + len(self._shares)

    def _start(self) -> None:
        # A file without a name, by which ranks find each other: no port, and nothing that stays behind.
        meeting = os.memfd_create("polybench-meeting")
        self._meeting = f"/proc/{os.getpid()}/fd/{meeting}"
        # What a rank writes belongs to the log of this worker, if that is a file.
        log = _STANDARD_ERROR.resolve()
        log = log if log.is_file() else Path(os.devnull)
        for share in self._shares:
            self._ranks.append(WorkerProcess({PINNED: share} if share else {}, log))

    def _told(self, request: Request, number: int) -> Request:
        """Each is told which one it is."""
        if isinstance(request, Load):
            return msgspec.structs.replace(request, rank=Rank(number, self._count, self._meeting))
        return request

    def _of(self, number: int, request: Request, answered: threading.Event) -> Answer:
        """What a rank answers; in a thread of its own."""
        rank, name = self._ranks[number - 1], f"rank {number} of {self._count}"
        answer: Answer
        try:
            answer = rank.ask(request, msgspec.Struct, math.inf)  # type: ignore[assignment]
        except Unavailable as missing:
            answer = Missing(f"{name}: {missing.reason}", missing.remedy)
        except CellFailed as error:
            answer = Failed(f"{name}: {error}")
        else:
            return answer
        if not answered.wait(_GRACE_SECONDS):
            self._tell(answer)
            os._exit(1)  # the main thread waits in an exchange; the kernel ends the others
        return answer

    def _why(self, own: Answer, others: Sequence[Future[Answer]]) -> Answer:
        """Where a rank has ended, that is why the first one failed; who still waits for it is ended."""
        wait(others, _GRACE_SECONDS)
        pairs = list(zip(self._ranks, others, strict=True))
        ended = [other.result() for rank, other in pairs if other.done() and rank.ended]
        for rank, other in pairs:
            if not other.done():
                with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(rank.pid, signal.SIGKILL)
        return next(iter(ended), own)

    def _of_all(self, own: Answer, others: Sequence[Answer]) -> Answer:
        if isinstance(own, Closed):
            for rank in self._ranks:
                rank.close()
            return own
        failed = (other for other in others if isinstance(other, Failed | Missing))
        return next(failed, None) or together(own, others)
