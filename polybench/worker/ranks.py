"""Data-parallel training: a worker starts further ranks and sends each request to all of them.

Ranks are ordinary worker processes, which die with the first one. If one rank fails, all of them end with its
reason, because the others could wait forever in an all-reduce. Otherwise their answers are combined: sums where
they are meaningful; times are rank 0's own.
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
from typing import Any, TypeVar

import msgspec

from polybench.engines.job import PINNED, RANKS, Rank
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol import calls
from polybench.protocol.calls import AllocationsCounted, Answer, Calibrated, NotAvailable, Reply, Request, RequestFailed
from polybench.protocol.process import WorkerProcess
from polybench.schema.resources import Allocations, BlockMeasured, MemoryInUse, NativeAllocation
from polybench.worker.handler import Worker

StructT = TypeVar("StructT", bound=msgspec.Struct)

_GRACE_SECONDS = 2.0
"""Wait for the other ranks after a failure: mostly they fail as well, and report why."""

_STANDARD_ERROR = Path("/proc/self/fd/2")


class RankCoordinator:
    """Rank 0 and the processes of the other ranks, if any.

    `send` sends a reply to the parent while rank 0's own worker is blocked.
    """

    def __init__(self, worker: Worker, send: Callable[[Reply], None]) -> None:
        self._worker, self._send = worker, send
        _, *self._cpu_shares = os.environ.get(RANKS, "").split(";")
        self._ranks: list[WorkerProcess] = []

    def handle(self, request: Request[Any]) -> Reply:
        """Handle a request in all ranks at the same time, and combine their responses."""
        if self._cpu_shares and request.call is calls.load and not self._ranks:
            self._start_ranks()
        # Rank 0 alone suffices, since all ranks have the same weights and optimizer state.
        if not self._ranks or request.call in (calls.evaluate, calls.save_training):
            return self._worker.handle(request)
        own_rank_finished = threading.Event()
        with ThreadPoolExecutor(len(self._ranks)) as pool:
            others = [
                pool.submit(self._request_from_rank, number, self._request_for_rank(request, number), own_rank_finished)
                for number in range(1, self._world_size)
            ]
            own = self._worker.handle(self._request_for_rank(request, 0))
            own_rank_finished.set()
            if isinstance(own, RequestFailed | NotAvailable):
                return self._find_failure(own, others)
            return self._combine(own, [other.result() for other in others])

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

    def _request_for_rank(self, request: Request[Any], number: int) -> Request[Any]:
        """Return the request for one rank: `load` contains the rank's number."""
        if request.call is calls.load:
            rank = Rank(number, self._world_size, self._rendezvous_file)
            return calls.load(request.arguments.factory, rank)
        return request

    def _request_from_rank(self, number: int, request: Request[Any], own_rank_finished: threading.Event) -> Reply:
        """Return a rank's response to a request; runs in a thread of its own."""
        rank, name = self._ranks[number - 1], f"rank {number} of {self._world_size}"
        response: Reply
        try:
            response = Answer(request.call.name, rank.request(request, math.inf))
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

    def _find_failure(self, own: Reply, others: Sequence[Future[Reply]]) -> Reply:
        """Return the response of a rank that has ended, which caused the failure, and end blocked ranks."""
        wait(others, _GRACE_SECONDS)
        pairs = list(zip(self._ranks, others, strict=True))
        ended = [other.result() for rank, other in pairs if other.done() and rank.has_ended]
        for rank, other in pairs:
            if not other.done():
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(rank.pid, signal.SIGKILL)
        return next(iter(ended), own)

    def _combine(self, own: Answer[Any], others: Sequence[Reply]) -> Reply:
        if own.call == calls.close.name:
            for rank in self._ranks:
                rank.close()
            return own
        answers = [other for other in others if isinstance(other, Answer)]
        failed = next((other for other in others if not isinstance(other, Answer)), None)
        return failed or Answer(own.call, combine_answers([own.value, *(answer.value for answer in answers)]))


def combine_answers(ranks: Sequence[Any]) -> Any:
    """Return the first rank's answer with the memory and allocations of all ranks.

    The sum of peak resident memory counts pages that ranks share once per rank.
    """
    match ranks[0]:
        case BlockMeasured():
            return msgspec.structs.replace(ranks[0], peak_rss_bytes=sum(rank.peak_rss_bytes for rank in ranks))
        case Calibrated():
            return msgspec.structs.replace(ranks[0], memory_in_use=_sum_in_use([rank.memory_in_use for rank in ranks]))
        case AllocationsCounted():
            memory = [rank.memory for rank in ranks]
            hosts = [rank.allocations.host for rank in ranks if rank.allocations.host is not None]
            devices = [rank.allocations.device for rank in ranks if rank.allocations.device is not None]
            # Mapped files are mostly the data set, which ranks share.
            file_mapped = [one.rss_file_bytes for one in memory]
            largest = None if None in file_mapped else max(file_mapped)
            return AllocationsCounted(
                msgspec.structs.replace(_sum_fields(memory), rss_file_bytes=largest),
                Allocations(_sum_fields(hosts) if hosts else None, _sum_fields(devices) if devices else None),
            )
        case NativeAllocation():
            return msgspec.structs.replace(_sum_fields(ranks), by_size=_sum_fields([rank.by_size for rank in ranks]))
        case _:
            return ranks[0]


def _sum_in_use(ranks: Sequence[MemoryInUse | None]) -> MemoryInUse | None:
    known = [one for one in ranks if one is not None]
    if len(known) < len(ranks):
        return None
    return MemoryInUse(known[0].steps, [sum(readings) for readings in zip(*(one.bytes for one in known), strict=True)])


def _sum_fields(ranks: Sequence[StructT]) -> StructT:
    """Return the first rank's values with sums of the fields that are numbers in every rank."""
    sums = {}
    for name in ranks[0].__struct_fields__:
        values = [getattr(rank, name) for rank in ranks]
        if all(isinstance(value, int | float) for value in values):
            sums[name] = sum(values)
    return msgspec.structs.replace(ranks[0], **sums)
