from __future__ import annotations

from collections.abc import Callable

import pytest

from polybench.machine.meters import gpu
from tests.machine.meters.simulated_driver import Driver, install

Install = Callable[..., Driver]


@pytest.fixture
def driver_with(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a driver with these cards and refused functions, sampled often."""
    monkeypatch.setattr(gpu, "SAMPLE_SECONDS", 0.01)
    return lambda *cards, **refuse: install(monkeypatch, Driver(*cards, **refuse))
