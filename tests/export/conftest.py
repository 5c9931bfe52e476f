from __future__ import annotations

import pytest

from polybench.metrics import DEFAULT_COLUMNS, METRICS
from polybench.metrics.base import Metric


@pytest.fixture
def columns() -> list[Metric]:
    return [METRICS[name] for name in DEFAULT_COLUMNS]
