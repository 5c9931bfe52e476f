"""Signal handling: a signal interrupts a study while it waits, not while it writes, saves, starts or
prints."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill PID` and a closed terminal have the same effect on a study."""


class _Interrupts:
    """Raises KeyboardInterrupt once: for the first signal at the next wait, for the second immediately."""

    def __init__(self) -> None:
        self.is_interruptible = self.is_pending = self.is_raised = False

    def handle(self, *_: Any) -> None:
        if self.is_raised:
            return  # the program is saving its results
        if self.is_interruptible or self.is_pending:
            self.interrupt()
        self.is_pending = True

    def interrupt(self) -> None:
        self.is_raised = True
        raise KeyboardInterrupt


_active: list[_Interrupts] = []
"""An entry per nested `defer_signals` block; the innermost is last."""


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Defer signals: within this block they raise KeyboardInterrupt in `interruptible` blocks, or if
    repeated.

    KeyboardInterrupt is raised at most once. Signals that are already ignored, such as SIGHUP under nohup,
    stay ignored. After an interrupt, all signals are ignored so that the program can print its results and
    exit.
    """
    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    _active.append(interrupts := _Interrupts())
    before = {number: signal.signal(number, interrupts.handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if interrupts.is_raised else handler)
        _active.pop()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Allow an interrupt anywhere in this block, in which no work is half done."""
    interrupts = _active[-1] if _active else None
    if interrupts is None or interrupts.is_raised:
        yield
        return
    before, interrupts.is_interruptible = interrupts.is_interruptible, True
    try:
        if interrupts.is_pending:
            interrupts.interrupt()
        yield
    finally:
        interrupts.is_interruptible = before


def ignore() -> None:
    """Ignore all signals from now on: the program is about to exit, and must keep its exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
