"""Utilization of CPU and GPU during the timed steps, power and energy."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units


def _percent(value: float) -> str:
    return f"{units.format_number(value)}%"


CPU_UTILIZATION = Metric(
    name="cpu_utilization",
    title="CPU use",
    unit="%",
    better=None,
    value=lambda result: result.utilization.cpu_percent,
    format_value=_percent,
)

GPU_UTILIZATION = Metric(
    name="gpu_utilization",
    title="GPU use",
    unit="%",
    better="higher",
    value=lambda result: result.utilization.gpu_percent,
    format_value=_percent,
)

POWER = Metric(
    name="power",
    title="power",
    unit="W",
    better="lower",
    value=lambda result: result.utilization.power,
    format_value=lambda watts: f"{units.format_number(watts)} W",
)

TEMPERATURE = Metric(
    name="temperature",
    title="GPU °C",
    unit="°C",
    better="lower",
    value=lambda result: result.utilization.temperature,
    format_value=units.format_number,
)

THROTTLE_REASONS = Metric(
    name="throttle_reasons",
    title="throttled by",
    unit=None,
    better=None,
    value=lambda result: ", ".join(result.utilization.throttle_reasons or ()) or None,
    unavailable_hint="clocks were not throttled, or cannot be read; see `polybench doctor`",
)

ENERGY = Metric(
    name="energy",
    title="energy per epoch",
    unit="J",
    better="lower",
    value=lambda result: result.energy.joules_per_epoch,
    format_value=lambda joules: f"{units.format_number(joules)} J",
)
