"""Dollars, where --price gives them: time x price, and that relative to the baseline's.

As the comparison of cloud CPUs and GPUs of 2017 defines it: https://minimaxir.com/2017/07/cpu-or-gpu/
"""

from __future__ import annotations

from polybench.core import units
from polybench.metrics.base import Metric

_NEEDS = "needs `--price`, as in `--price cpu=0.24`"

COST = Metric(
    name="cost",
    title="cost per epoch",
    unit="$",
    better="lower",
    value=lambda result: result.cost.dollars_per_epoch if result.cost else None,
    show=lambda dollars: f"${units.number(dollars)}",
    note="of an epoch, with `--price cpu=0.24 --price cuda=3.06`, dollars an hour",
    needs=_NEEDS,
)

RELATIVE_COST = Metric(
    name="relative_cost",
    title="relative cost",
    unit="",
    better="lower",
    value=lambda result: result.cost.relative if result.cost else None,
    show=units.number,
    needs=_NEEDS,
)
