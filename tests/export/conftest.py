from __future__ import annotations

import pytest

from polybench.metrics import metrics_of
from polybench.metrics.base import Metric


@pytest.fixture
def columns() -> list[Metric]:
    return metrics_of(["step_time", "throughput", "speedup", "cold_start", "peak_memory", "parity"])
