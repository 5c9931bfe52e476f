"""Workers without pipes: the same requests and replies, in the test's own process or in one that tests share."""

from __future__ import annotations

import functools
from concurrent.futures import Executor
from unittest.mock import patch

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, NotAvailable, Request, RequestFailed
from polybench.worker import handler
from polybench.worker.handler import Worker


class InProcess:
    """A worker in this process; every message is encoded and decoded as JSON, like the pipes do."""

    def __init__(self, factory: str) -> None:
        self._worker = Worker()
        with patch.object(handler, "loaded_code", dict):  # of all tests of this process, which are thousands of files
            self.request(calls.load(factory))

    def request(self, request: Request[AnswerT], timeout: float = 60.0) -> AnswerT:
        reply = calls.decode_reply(self._answer(calls.encode(request), timeout))
        if isinstance(reply, RequestFailed):
            raise ConfigurationFailed(reply.reason)
        if isinstance(reply, NotAvailable):
            raise EngineUnavailable(reply.reason, reply.hint)
        assert reply.call == request.call.name
        return reply.value

    def _answer(self, line: bytes, timeout: float) -> bytes:
        return answer(self._worker, line)


class InExecutor(InProcess):
    """The worker of a process that runs its tasks sequentially; all sessions with the process share it."""

    def __init__(self, process: Executor, factory: str, timeout: float) -> None:
        self._process = process
        self.request(calls.load(factory), timeout)

    def _answer(self, line: bytes, timeout: float) -> bytes:
        return self._process.submit(answer_in_executor, line).result(timeout)


def answer(worker: Worker, line: bytes) -> bytes:
    return calls.encode(worker.handle(calls.decode_request(line)))


_own_worker = functools.cache(Worker)


def answer_in_executor(line: bytes) -> bytes:
    """Answer a request to this process, in which the executor calls this."""
    return answer(_own_worker(), line)
