"""Phases of a cold start, from the start of a process to the end of its second training step.

The first step includes one-time work (compilation, tracing, autotuning); the second shows how much remains.
"""

from __future__ import annotations

from collections.abc import Callable

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Result, Startup


def _phase(name: str, title: str, seconds: Callable[[Startup], float], description: str = "") -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="s",
        better="lower",
        value=lambda result: seconds(result.startup) if result.startup else None,
        format_value=units.format_seconds,
        description=description,
    )


COLD_START = _phase("cold_start", "cold start", lambda startup: startup.cold_start_seconds, "sum of the phases")

STARTUP_PHASES = (
    _phase("process_start_time", "process start", lambda startup: startup.process_seconds),
    _phase("import_time", "import", lambda startup: startup.import_seconds),
    _phase("build_time", "build", lambda startup: startup.build_seconds),
    _phase("data_to_device_time", "data to device", lambda startup: startup.data_seconds),
    _phase(
        "first_step",
        "first step",
        lambda startup: startup.first_step_seconds,
        "includes compilation, tracing and autotuning",
    ),
    _phase("second_step", "second step", lambda startup: startup.second_step_seconds),
)


def _steps(result: Result) -> int | None:
    """Return the steps after which a slower start is repaid: 0 if it does not start later."""
    baseline = result.vs_baseline.baseline if result.vs_baseline else None
    return next((entry.steps for entry in result.break_even_steps if entry.baseline == baseline), None)


def _format(result: Result) -> str:
    baseline = result.vs_baseline.baseline if result.vs_baseline else None
    if not any(entry.baseline == baseline for entry in result.break_even_steps):
        return ""
    steps = _steps(result)
    return "never" if steps is None else units.format_count(steps)


BREAK_EVEN = Metric(
    name="break_even_steps",
    title="break-even steps",
    unit="",
    better="lower",
    value=_steps,
    format_result=_format,
    description="steps after which a slower cold start is repaid",
)
