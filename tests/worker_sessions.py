"""A worker in the test's own process: the same requests and replies, without a process."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol.messages import (
    Load,
    Loaded,
    NotAvailable,
    Request,
    RequestFailed,
    Response,
    encoder,
    request_decoder,
    response_decoder,
)
from polybench.worker.handler import Worker

A = TypeVar("A", bound=msgspec.Struct)


class InProcess:
    """Encode and decode every message as JSON, like the pipes do."""

    def __init__(self, factory: str) -> None:
        self._worker = Worker()
        self.request(Load(factory), Loaded)

    def request(self, message: Request, reply_type: type[A], timeout: float = 60.0) -> A:
        answer: Response = self._worker.handle(request_decoder.decode(encoder.encode(message)))
        answer = response_decoder.decode(encoder.encode(answer))
        if isinstance(answer, RequestFailed):
            raise ConfigurationFailed(answer.reason)
        if isinstance(answer, NotAvailable):
            raise EngineUnavailable(answer.reason, answer.hint)
        assert isinstance(answer, reply_type)
        return answer
