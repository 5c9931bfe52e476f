"""Cost of an epoch with `--price`: its time multiplied by the price, and its ratio to the baseline's cost.

Definition of the comparison of cloud CPUs and GPUs of 2017: https://minimaxir.com/2017/07/cpu-or-gpu/
"""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units

_HINT = "needs `--price`, for example `--price cpu=0.24`"

COST_PER_EPOCH = Metric(
    name="cost_per_epoch",
    title="cost per epoch",
    unit="$",
    better="lower",
    value=lambda result: result.cost.dollars_per_epoch if result.cost else None,
    format_value=lambda dollars: f"${units.format_number(dollars)}",
    description="with `--price cpu=0.24 --price cuda=3.06`, in dollars per hour",
    unavailable_hint=_HINT,
)

RELATIVE_COST = Metric(
    name="relative_cost",
    title="relative cost",
    unit="",
    better="lower",
    value=lambda result: result.cost.relative if result.cost else None,
    format_value=units.format_number,
    unavailable_hint=_HINT,
)
