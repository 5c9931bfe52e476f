"""How busy the machine was during the timed steps, and what that took of energy."""

from __future__ import annotations

from polybench.core import units
from polybench.metrics.base import Metric


def _percent(value: float) -> str:
    return f"{units.number(value)}%"


CPU = Metric(
    name="cpu",
    title="CPU",
    unit="%",
    better=None,
    value=lambda result: result.utilization.cpu_percent,
    show=_percent,
)

GPU = Metric(
    name="gpu",
    title="GPU busy",
    unit="%",
    better="higher",
    value=lambda result: result.utilization.gpu_percent,
    show=_percent,
)

POWER = Metric(
    name="power",
    title="power",
    unit="W",
    better="lower",
    value=lambda result: result.utilization.power,
    show=lambda watts: f"{units.number(watts)} W",
)

TEMPERATURE = Metric(
    name="temperature",
    title="GPU °C",
    unit="°C",
    better="lower",
    value=lambda result: result.utilization.temperature,
    show=units.number,
)

THROTTLE = Metric(
    name="throttle",
    title="throttled by",
    unit=None,
    better=None,
    value=lambda result: ", ".join(result.utilization.throttle or ()) or None,
    needs="nothing throttled, or it cannot be read; see `polybench doctor`",
)

ENERGY = Metric(
    name="energy",
    title="energy per epoch",
    unit="J",
    better="lower",
    value=lambda result: result.energy.joules_per_epoch,
    show=lambda joules: f"{units.number(joules)} J",
    note="of an epoch",
)
