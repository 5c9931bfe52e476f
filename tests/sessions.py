"""A worker in the test's own process: the same requests and answers, without a process."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from polybench.core.errors import CellFailed, Unavailable
from polybench.wire.messages import (
    Answer,
    Failed,
    Load,
    Loaded,
    Missing,
    Request,
    answer_decoder,
    encoder,
    request_decoder,
)
from polybench.worker.handler import Worker

A = TypeVar("A", bound=msgspec.Struct)


class InProcess:
    """Sends every message through its JSON form, as the pipes do."""

    def __init__(self, factory: str) -> None:
        self._worker = Worker()
        self.ask(Load(factory), Loaded)

    def ask(self, request: Request, kind: type[A], timeout: float = 60.0) -> A:
        answer: Answer = self._worker.answer(request_decoder.decode(encoder.encode(request)))
        answer = answer_decoder.decode(encoder.encode(answer))
        if isinstance(answer, Failed):
            raise CellFailed(answer.reason)
        if isinstance(answer, Missing):
            raise Unavailable(answer.reason, answer.remedy)
        assert isinstance(answer, kind)
        return answer
