"""When a signal ends a study: while its process waits, never while it writes, saves, starts or prints."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill PID`, and a terminal that was closed: the same to a study."""


class _Interrupts:
    """The first signal is heard at the next wait, a second one at once; then the study ends undisturbed."""

    def __init__(self) -> None:
        self.waiting = self.pending = self.raised = False

    def handle(self, *_: Any) -> None:
        if self.raised:
            return  # what was measured is being saved
        if self.waiting or self.pending:
            self.interrupt()
        self.pending = True

    def interrupt(self) -> None:
        self.raised = True
        raise KeyboardInterrupt


_heard: list[_Interrupts] = []
"""By the innermost `deferred` block, last."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """In this block a signal raises KeyboardInterrupt in `waiting` blocks, or if it comes twice; only once.

    What is ignored already, as SIGHUP is under nohup, stays ignored. After an interrupt signals are ignored:
    the program only has to print what it has, and ends.
    """
    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    _heard.append(interrupts := _Interrupts())
    before = {number: signal.signal(number, interrupts.handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if interrupts.raised else handler)
        _heard.pop()


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """In this block nothing is half done: an interrupt may end it anywhere."""
    interrupts = _heard[-1] if _heard else None
    if interrupts is None or interrupts.raised:
        yield
        return
    before, interrupts.waiting = interrupts.waiting, True
    try:
        if interrupts.pending:
            interrupts.interrupt()
        yield
    finally:
        interrupts.waiting = before


def ignore() -> None:
    """From here on the program only ends: it is not to end in another way, with another exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
