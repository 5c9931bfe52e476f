from __future__ import annotations

from collections.abc import Callable

import pytest

from polybench.machine.meters import nvml, sampler
from tests.machine.meters.fake_nvml import FakeNvml

Install = Callable[[FakeNvml], FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace the real driver by a fake one, sampled often."""

    def install(fake: FakeNvml) -> FakeNvml:
        monkeypatch.setattr(nvml, "load", lambda: fake)
        monkeypatch.setattr(sampler, "INTERVAL_SECONDS", 0.01)
        return fake

    return install
