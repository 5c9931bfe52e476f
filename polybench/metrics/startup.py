"""The cold-start ledger: from the start of a process to the end of its second training step, part by part.

The first step holds what is done once: compilation, tracing, autotuning; the second shows what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.times import Startup
from polybench.metrics.base import Metric


def _part(name: str, title: str, seconds: Callable[[Startup], float], note: str = "") -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="s",
        better="lower",
        value=lambda result: seconds(result.startup) if result.startup else None,
        show=units.seconds,
        note=note,
    )


COLD_START = _part("cold_start", "cold start", lambda startup: startup.total_seconds, "sum of the parts")

LEDGER = (
    _part("process_start", "process", lambda startup: startup.process_seconds),
    _part("import_time", "import", lambda startup: startup.import_seconds),
    _part("build_time", "build", lambda startup: startup.build_seconds),
    _part("data_time", "data to device", lambda startup: startup.data_seconds),
    _part(
        "first_step",
        "first step",
        lambda startup: startup.first_step_seconds,
        "compiling, tracing, autotuning",
    ),
    _part("second_step", "second step", lambda startup: startup.second_step_seconds),
)


def _steps(result: Result) -> int | None:
    """After how many steps the cell has caught up with the baseline: 0 if it does not start later."""
    baseline = result.relative.baseline if result.relative else None
    return next((repaid.steps for repaid in result.break_even if repaid.against == baseline), None)


def _in_words(result: Result) -> str:
    baseline = result.relative.baseline if result.relative else None
    if not any(repaid.against == baseline for repaid in result.break_even):
        return ""
    steps = _steps(result)
    return "never" if steps is None else units.count(steps)


BREAK_EVEN = Metric(
    name="break_even",
    title="break-even steps",
    unit="",
    better="lower",
    value=_steps,
    in_words=_in_words,
    note="steps until a slower start is repaid",
)
