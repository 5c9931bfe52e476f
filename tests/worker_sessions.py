"""A worker in the test's own process: the same requests and replies, without a process."""

from __future__ import annotations

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, NotAvailable, Request, RequestFailed
from polybench.worker.handler import Worker


class InProcess:
    """Encode and decode every message as JSON, like the pipes do."""

    def __init__(self, factory: str) -> None:
        self._worker = Worker()
        self.request(calls.load(factory))

    def request(self, request: Request[AnswerT], timeout: float = 60.0) -> AnswerT:
        reply = self._worker.handle(calls.decode_request(calls.encode(request)))
        reply = calls.decode_reply(calls.encode(reply))
        if isinstance(reply, RequestFailed):
            raise ConfigurationFailed(reply.reason)
        if isinstance(reply, NotAvailable):
            raise EngineUnavailable(reply.reason, reply.hint)
        assert reply.call == request.call.name
        return reply.value
