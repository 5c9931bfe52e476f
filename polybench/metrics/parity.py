"""Whether a cell did the same arithmetic as the float64 reference."""

from __future__ import annotations

from polybench.core.results import Result
from polybench.metrics.base import Metric

_WORDS = {"pass": "identical", "fail": "DIFFERS", "skipped": "not checked"}


def _value(result: Result) -> str:
    return result.parity.status


def _text(result: Result) -> str:
    return _WORDS[result.parity.status]


PARITY = Metric(
    name="parity",
    title="parity",
    unit=None,
    better=None,
    value=_value,
    text=_text,
)
