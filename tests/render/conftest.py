from __future__ import annotations

import pytest

from polybench.schema.metrics import Metric, select_metrics


@pytest.fixture
def columns() -> list[Metric]:
    return select_metrics(["step_time", "throughput", "speedup", "cold_start", "peak_memory", "parity"])
