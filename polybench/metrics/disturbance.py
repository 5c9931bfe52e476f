"""What the kernel did to a worker while it was timed: page faults, context switches, waiting for a core."""

from __future__ import annotations

from collections.abc import Callable

from polybench.core import units
from polybench.core.document.resources import Disturbance
from polybench.metrics.base import Metric


def _counted(
    name: str,
    title: str,
    unit: str,
    value: Callable[[Disturbance], float | None],
    show: Callable[[float], str],
    note: str,
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better="lower",
        value=lambda result: value(result.disturbance),
        show=show,
        note=note,
    )


def _switches(disturbance: Disturbance) -> float | None:
    own, forced = disturbance.voluntary_switches_per_step, disturbance.involuntary_switches_per_step
    return None if own is None or forced is None else own + forced


DISTURBANCE = (
    _counted(
        "page_faults",
        "page faults per step",
        "",
        lambda disturbance: disturbance.minor_faults_per_step,
        units.number,
        "pages that the kernel had to map, as where the C library gave memory back",
    ),
    _counted("context_switches", "context switches per step", "", _switches, units.number, "of all threads"),
    _counted(
        "run_delay",
        "waiting for a core per step",
        "s",
        lambda disturbance: disturbance.run_delay_seconds_per_step,
        units.seconds,
        "ready to run, summed over threads",
    ),
)
