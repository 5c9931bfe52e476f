"""The clock of operations on a device."""

from __future__ import annotations

import pytest

from polybench.engines.shared import timed_operations
from polybench.engines.shared.timed_operations import OperationCall, make_timed_operations


def test_the_clock_starts_and_stops_when_the_device_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call returns at once; the device needs a second for it."""
    now, queued = 0.0, 5.0

    def call() -> None:
        nonlocal queued
        queued += 1.0

    def synchronize() -> None:
        nonlocal now, queued
        now, queued = now + queued, 0.0

    monkeypatch.setattr(timed_operations, "perf_counter", lambda: now)
    operation = make_timed_operations({"forward": OperationCall(call)}, synchronize)["forward"]
    assert operation.run(3) == 3.0
