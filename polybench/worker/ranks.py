"""Data-parallel training: a worker starts further ranks and sends each request to all of them.

Ranks are ordinary worker processes, which die with the first one. If one rank fails, all of them end with its
reason, because the others could wait forever in an all-reduce.
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

from polybench.engines.job import PINNED, RANKS, Rank
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol.messages import Closed, Evaluate, Load, NotAvailable, Request, RequestFailed, Response
from polybench.protocol.process import WorkerProcess
from polybench.protocol.training_messages import SaveTraining
from polybench.worker.combine_ranks import combine_ranks
from polybench.worker.handler import Worker

_GRACE_SECONDS = 2.0
"""Wait for the other ranks after a failure: mostly they fail as well, and report why."""

_STANDARD_ERROR = Path("/proc/self/fd/2")


class RankCoordinator:
    """Rank 0 and the processes of the other ranks, if any.

    Args:
        worker: that of rank 0.
        send: sends a response to the parent while rank 0's own worker is blocked.
    """

    def __init__(self, worker: Worker, send: Callable[[Response], None]) -> None:
        self._worker, self._send = worker, send
        _, *self._cpu_shares = os.environ.get(RANKS, "").split(";")
        self._ranks: list[WorkerProcess] = []

    def handle(self, request: Request) -> Response:
        """Handle a request in all ranks at the same time, and combine their responses."""
        if self._cpu_shares and isinstance(request, Load) and not self._ranks:
            self._start_ranks()
        # Rank 0 alone suffices, since all ranks have the same weights and optimizer state.
        if not self._ranks or isinstance(request, Evaluate | SaveTraining):
            return self._worker.handle(request)
        own_rank_finished = threading.Event()
        with ThreadPoolExecutor(len(self._ranks)) as pool:
            others = [
                pool.submit(
                    self._request_from_rank,
                    number,
                    self._request_for_rank(request, number),
                    own_rank_finished,
                )
                for number in range(1, self._world_size)
            ]
            own_response = self._worker.handle(self._request_for_rank(request, 0))
            own_rank_finished.set()
            if isinstance(own_response, RequestFailed | NotAvailable):
                return self._find_failure(own_response, others)
            return self._combine(own_response, [other.result() for other in others])

    @property
    def _world_size(self) -> int:
        return 1 + len(self._cpu_shares)

    def _start_ranks(self) -> None:
        # Ranks rendezvous by a file without a name, so there is no port, and no file to clean up.
        descriptor = os.memfd_create("polybench-rendezvous")
        self._rendezvous_file = f"/proc/{os.getpid()}/fd/{descriptor}"
        # Ranks write to the log of this worker, if it has one.
        log = _STANDARD_ERROR.resolve()
        log = log if log.is_file() else Path(os.devnull)
        for share in self._cpu_shares:
            self._ranks.append(WorkerProcess({PINNED: share} if share else {}, log))

    def _request_for_rank(self, request: Request, number: int) -> Request:
        """Return the request for one rank: `Load` contains the rank's number."""
        if isinstance(request, Load):
            return msgspec.structs.replace(request, rank=Rank(number, self._world_size, self._rendezvous_file))
        return request

    def _request_from_rank(self, number: int, request: Request, own_rank_finished: threading.Event) -> Response:
        """Return a rank's response to a request; runs in a thread of its own."""
        rank, name = self._ranks[number - 1], f"rank {number} of {self._world_size}"
        response: Response
        try:
            response = rank.request(request, msgspec.Struct, math.inf)  # type: ignore[assignment]
        except EngineUnavailable as error:
            response = NotAvailable(f"{name}: {error.reason}", error.hint)
        except ConfigurationFailed as error:
            response = RequestFailed(f"{name}: {error}")
        else:
            return response
        if not own_rank_finished.wait(_GRACE_SECONDS):
            self._send(response)
            os._exit(1)  # the main thread is blocked in an all-reduce; the kernel ends the other ranks
        return response

    def _find_failure(self, own_response: Response, others: Sequence[Future[Response]]) -> Response:
        """Return the response of a rank that has ended, which caused the failure, and end blocked ranks."""
        wait(others, _GRACE_SECONDS)
        pairs = list(zip(self._ranks, others, strict=True))
        ended = [other.result() for rank, other in pairs if other.done() and rank.has_ended]
        for rank, other in pairs:
            if not other.done():
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(rank.pid, signal.SIGKILL)
        return next(iter(ended), own_response)

    def _combine(self, own_response: Response, others: Sequence[Response]) -> Response:
        if isinstance(own_response, Closed):
            for rank in self._ranks:
                rank.close()
            return own_response
        failed = (other for other in others if isinstance(other, RequestFailed | NotAvailable))
        return next(failed, None) or combine_ranks(own_response, others)
