"""Signals while a study waits, works, and prints its results."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from polybench.machine.interrupts import SIGNALS, defer_signals, interruptible


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Install the same handler for each signal, and restore those before."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_the_next_wait_and_later_ones_nothing(number: signal.Signals) -> None:
    with defer_signals():
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt), interruptible():
            raise AssertionError("the wait has started")
        signal.raise_signal(number)  # while the results are saved
        with interruptible():
            signal.raise_signal(number)
    # Later ones are ignored, so that the results are printed.
    assert {signal.getsignal(one) for one in SIGNALS} == {signal.SIG_IGN}


def test_a_study_without_a_signal_leaves_the_handlers() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with defer_signals(), interruptible():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
