"""Result of the parity check against the float64 reference."""

from __future__ import annotations

from polybench.metrics.base import Metric

_WORDS = {"pass": "identical", "fail": "DIFFERS", "skipped": "not checked"}

PARITY = Metric(
    name="parity",
    title="parity",
    unit=None,
    better=None,
    value=lambda result: result.parity.status,
    format_value=lambda status: _WORDS[status],
)
