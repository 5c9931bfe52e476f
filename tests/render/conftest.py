from __future__ import annotations

import pytest

from polybench.metrics import select_metrics
from polybench.metrics.base import Metric


@pytest.fixture
def columns() -> list[Metric]:
    return select_metrics(["step_time", "throughput", "speedup", "cold_start", "peak_memory", "parity"])
