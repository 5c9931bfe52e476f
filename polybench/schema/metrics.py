"""The metrics of a result, which are the columns of a study's table. ADD A METRIC: a row of `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Literal

import msgspec

from polybench.errors import install_command, lookup_or_suggest
from polybench.plugins import Registry
from polybench.schema import units
from polybench.schema.result import (
    BUSY,
    SINGLE_PROCESS,
    BreakEven,
    Interval,
    Result,
    Scaling,
    TimeToAccuracy,
    TimeToLoss,
    mark_inconclusive,
)

_NOT_MEASURED = "not measured on this machine; see `polybench doctor`"

_FORMATS: dict[str | None, Callable[[Any], str]] = {
    "s": units.format_seconds,
    "B": units.format_bytes,
    "images/s": units.format_count,
    "steps/s": units.format_count,
    "tokens/s": units.format_count,
    "%": lambda percent: f"{units.format_number(percent)}%",
    "W": lambda watts: f"{units.format_number(watts)} W",
    "J": lambda joules: f"{units.format_number(joules)} J",
    "$": lambda dollars: f"${units.format_number(dollars)}",
    None: str,
}
"""Format of a value by its unit; a plain number otherwise."""

_FORMATS_WITH_INTERVAL = {
    "s": units.format_seconds_with_margin,
    "B": units.format_bytes_with_ci,
    "": units.format_with_ci,
}


class Metric(msgspec.Struct, frozen=True):
    """A number or word of a result.

    Attributes:
        name: key for --columns and CSV.
        unit: SI unit of the value; "" for a plain number, None for words.
        source: field of a result with the value, such as `memory.peak_rss_bytes`, or a function.
        description: explanation for lists of all metrics, beyond the name.
        better: direction of improvement; None for a neutral metric.
        title: heading of the column; by default the name with spaces.
        groups: names that select this and other metrics.
        ci95: field with the 95 % interval, in the unit of the value, or a function.
        comparison: field of a result with the comparison that the value belongs to, which may be inconclusive.
        of_step: True if the value follows from the mean step alone.
        format_value: text of a value without its interval; by default that of its unit, with its interval.
        format_result: text of a whole result, if the value is not enough.
        unavailable_hint: condition under which the metric has a value.
    """

    name: str
    unit: str | None
    source: str | Callable[[Result], float | str | None]
    description: str = ""
    better: Literal["lower", "higher"] | None = "lower"
    title: str = ""
    groups: tuple[str, ...] = ()
    ci95: str | Callable[[Result], Interval | None] = ""
    comparison: Literal["", "vs_baseline", "gpu_speedup", "scaling", "cost"] = ""
    of_step: bool = False
    format_value: Callable[[Any], str] | None = None
    format_result: Callable[[Result], str] | None = None
    unavailable_hint: str = _NOT_MEASURED

    def __post_init__(self) -> None:
        if not self.title:
            msgspec.structs.force_setattr(self, "title", self.name.replace("_", " "))

    def value(self, result: Result) -> float | str | None:
        """Return the number or word; None if nothing could measure it."""
        found: float | str | None = _read(result, self.source)
        return found

    @property
    def has_interval(self) -> bool:
        """True if the metric has intervals; the interval of a single result may still be missing."""
        return self.ci95 != ""

    def interval(self, result: Result) -> Interval | None:
        """Return the 95 % interval; None if it is unknown."""
        found: Interval | None = _read(result, self.ci95) if self.ci95 else None
        return found

    def is_inconclusive(self, result: Result) -> bool:
        """Return True if the value compares two results and supports no conclusion."""
        found = getattr(result, self.comparison) if self.comparison else None
        is_itself = getattr(found, "baseline", None) == result.configuration
        return found is not None and not is_itself and found.is_inconclusive and self.value(result) is not None

    def _has_no_result(self, result: Result) -> bool:
        """Return True if the value is one of a step without a result, or an inconclusive ratio."""
        if self.of_step:
            return result.busy or result.has_wide_step
        found: Any = getattr(result, self.comparison) if self.comparison else None
        if not self.is_inconclusive(result):
            return False
        reason = units.describe_too_wide(found.ci95) or found.inconclusive_reason or SINGLE_PROCESS
        return bool(reason != SINGLE_PROCESS)

    @property
    def field_names(self) -> list[str]:
        """Names of the value, the bounds of its interval, and whether it is inconclusive."""
        suffixes = [
            "",
            *(["_low", "_high"] if self.has_interval else []),
            *(["_inconclusive"] if self.comparison else []),
        ]
        return [self.name + suffix for suffix in suffixes]

    def fields(self, result: Result) -> dict[str, float | str | bool | None]:
        """Return the values of `field_names`; numbers without a result are None."""
        value, interval = self.value(result), self.interval(result)
        inconclusive = [self.is_inconclusive(result)] if self.comparison else []
        if self._has_no_result(result):
            value = interval = None
        bounds = [*(interval or (None, None))] if self.has_interval else []
        return dict(zip(self.field_names, [value, *bounds, *inconclusive], strict=True))

    def text(self, result: Result, *, with_margin: bool = True) -> str:
        """Format the table's text for a result, marked if it compares memory groups; "" without a value.

        The margin of error of a time is left out if there is no room for it.
        """
        text = self._unmarked_text(result, with_margin)
        return text if is_side_by_side(result, self.comparison) or not text else f"{text} *"

    def _unmarked_text(self, result: Result, with_margin: bool) -> str:
        value: Any = self.value(result)
        format_value = self.format_value or _FORMATS.get(self.unit, units.format_number)
        if self._has_no_result(result):
            mark = BUSY if result.busy else units.NO_RESULT
            return mark if self.comparison or self.name == "step_time" else ""
        if self.is_inconclusive(result):
            return mark_inconclusive(format_value(value), SINGLE_PROCESS)
        if self.format_result is not None:
            return self.format_result(result)
        if value is None:
            return ""
        if with_margin and self.format_value is None and self.unit is not None and self.has_interval:
            return _FORMATS_WITH_INTERVAL[self.unit](value, self.interval(result))
        return format_value(value)


def is_side_by_side(result: Result, comparison: str) -> bool:
    """Return False if a field of the result compares it with one that memory could not hold beside it."""
    # A cost is relative to the baseline's.
    found = getattr(result, comparison.replace("cost", "vs_baseline")) if comparison else None
    return found is None or found.side_by_side


def _read(result: Result, source: str | Callable[[Result], Any]) -> Any:
    if not isinstance(source, str):
        return source(result)
    value: Any = result
    for name in source.split("."):
        value = getattr(value, name)
        if value is None:
            return None
    return value


def _format_speedup(result: Result) -> str:
    found = result.vs_baseline
    if found is None:
        return ""
    is_baseline = found.baseline == result.configuration
    return "1" if is_baseline else units.format_with_ci(found.speedup, found.ci95)


def _format_accuracy(result: Result) -> str:
    return "" if result.accuracy is None else units.format_with_std(result.accuracy, result.accuracy_std)


def _format_test_loss(result: Result) -> str:
    return "" if result.test_loss is None else units.format_with_std(result.test_loss, result.test_loss_std)


def _format_native_bytes(result: Result) -> str:
    """Format the bytes with their ratio to the baseline, as in "24.8 MiB (0.474x)"."""
    native = result.allocations.native
    if native is None:
        return ""
    ratio = native.ratio_to_baseline
    size = units.format_bytes(native.bytes_per_step)
    return size if ratio is None else f"{size} ({units.format_ratio(ratio)})"


def _format_time_to(target: TimeToAccuracy | TimeToLoss | None) -> str:
    if target is None:
        return ""
    return "not reached" if target.seconds is None else units.format_seconds(target.seconds)


def _of_all_steps(function: Callable[[list[float]], float]) -> Callable[[Result], float | None]:
    """Return a metric of all step times; None if each value is the mean of a block, or if no block was quiet."""

    def value(result: Result) -> float | None:
        times = result.step_times
        if times is None or times.resolution == "block" or result.busy:
            return None
        return function([seconds for process in times.values for rounds in process for seconds in rounds])

    return value


def _replicas(result: Result) -> int | None:
    """Return the number of replicas; None if no engine of the study has several."""
    replicas = result.workload.replicas
    return replicas if result.is_measured and (replicas > 1 or result.scaling is not None) else None


def _scaling(result: Result) -> Scaling | None:
    """Return the scaling; None for the baseline of the scaling itself."""
    found = result.scaling
    return None if found is None or found.baseline == result.configuration else found


def _efficiency_interval(result: Result) -> Interval | None:
    found = _scaling(result)
    if found is None or found.ci95 is None:
        return None
    low, high = found.ci95
    return low / found.devices, high / found.devices


def _break_even(result: Result) -> BreakEven | None:
    """Return the steps after which the cold start pays off against the baseline; None if unknown."""
    baseline = result.vs_baseline.baseline if result.vs_baseline else None
    return next((entry for entry in result.break_even_steps if entry.baseline == baseline), None)


def _format_break_even(result: Result) -> str:
    found = _break_even(result)
    if found is None:
        return ""
    text = "never" if found.steps is None else units.format_count(found.steps)
    return mark_inconclusive(text, result.vs_baseline.inconclusive_reason if result.vs_baseline else None)


def _context_switches(result: Result) -> float | None:
    own = result.interference.voluntary_switches_per_step
    forced = result.interference.involuntary_switches_per_step
    return None if own is None or forced is None else own + forced


def _group(group: str, *metrics: Metric, unavailable_hint: str = _NOT_MEASURED) -> list[Metric]:
    """Add the group to these metrics, and the hint to those without one."""
    return [
        msgspec.structs.replace(
            metric,
            groups=(group, *metric.groups),
            unavailable_hint=unavailable_hint if metric.unavailable_hint == _NOT_MEASURED else metric.unavailable_hint,
        )
        for metric in metrics
    ]


_NEEDS_PRICE = "needs `--price`, for example `--price cpu=0.24`"

_METRICS = (
    *_group(
        "speed",
        Metric(
            "step_time", "s", "step_time.mean", "mean of all steps", title="step", ci95="step_time.ci95", of_step=True
        ),
        Metric(
            "throughput",
            "images/s",
            "items_per_second",
            better="higher",
            title="images/s",
            groups=("pipeline",),
            of_step=True,
        ),
        Metric(
            "tokens_per_second",
            "tokens/s",
            "tokens_per_second",
            "of networks whose input is tokens",
            better="higher",
            title="tokens/s",
            of_step=True,
            unavailable_hint="needs a network whose input is tokens, such as `--model char-gpt`",
        ),
        Metric(
            "steps_per_second",
            "steps/s",
            lambda result: 1 / result.step_seconds if result.is_measured else None,
            better="higher",
            title="steps/s",
            of_step=True,
        ),
        Metric("epoch_time", "s", "epoch_seconds", "measured with `--epochs`; otherwise mean step x steps per epoch"),
    ),
    *_group(
        "pipeline",
        Metric("data_wait_time", "s", "pipeline.data_wait_seconds_per_step", title="waiting for data"),
        Metric("compute_time", "s", "pipeline.compute_seconds_per_step", title="compute"),
        Metric(
            "pipeline_throughput",
            "images/s",
            "pipeline.pipeline_items_per_second",
            better="higher",
            title="pipeline alone, images/s",
        ),
        Metric(
            "training_throughput",
            "images/s",
            "pipeline.training_items_per_second",
            better="higher",
            title="training alone, images/s",
        ),
        unavailable_hint="needs `--input pipeline`",
    ),
    *_group(
        "speed",
        Metric(
            "speedup",
            "",
            "vs_baseline.speedup",
            "relative to `--baseline`",
            better="higher",
            title="speed",
            ci95="vs_baseline.ci95",
            comparison="vs_baseline",
            format_result=_format_speedup,
        ),
        Metric(
            "gpu_speedup",
            "",
            "gpu_speedup.speedup",
            "speed on CUDA divided by the same engine's on the CPU",
            better="higher",
            title="vs its CPU",
            ci95="gpu_speedup.ci95",
            comparison="gpu_speedup",
            format_value=units.format_ratio,
            unavailable_hint="needs `--devices cpu,cuda`",
        ),
    ),
    *_group(
        "replicas",
        Metric(
            "data_parallel",
            "",
            _replicas,
            "number of replicas; each trains the network on its share of every batch",
            better=None,
            title="replicas",
            format_value=units.format_count,
        ),
        Metric(
            "parallel_speedup",
            "",
            lambda result: found.speedup if (found := _scaling(result)) else None,
            "images/s divided by those of the same configuration with one replica",
            better="higher",
            title="vs 1 replica",
            ci95=lambda result: found.ci95 if (found := _scaling(result)) else None,
            comparison="scaling",
            format_value=units.format_ratio,
        ),
        Metric(
            "parallel_efficiency",
            "",
            lambda result: found.efficiency if (found := _scaling(result)) else None,
            "`parallel_speedup` divided by the number of GPUs; equal to `parallel_speedup` on the CPU,"
            " where replicas share the study's threads",
            better="higher",
            ci95=_efficiency_interval,
            comparison="scaling",
            format_value=units.format_percent,
        ),
        Metric(
            "allreduce_share",
            "",
            "communication.fraction",
            "share of a step's time that is saved without the all-reduce of gradients",
            title="all-reduce share",
            format_value=units.format_percent,
            unavailable_hint="needs `--replicas 2` and an engine that can skip the all-reduce",
        ),
        unavailable_hint="needs `--replicas 1,2`",
    ),
    *_group(
        "typical",
        Metric(
            "typical_step_time",
            "s",
            "step_time.median",
            "median of the medians of rounds: leaves out what happens in fewer than half of the steps",
            title="typical step",
        ),
        Metric(
            "typical_speedup",
            "",
            "vs_baseline.typical_speedup",
            "ratio of typical steps",
            better="higher",
            comparison="vs_baseline",
        ),
        unavailable_hint="not in this study",
    ),
    *_group(
        "distribution",
        Metric("min_step_time", "s", _of_all_steps(min), "shortest of all timed steps", title="min step"),
        Metric("median_step_time", "s", _of_all_steps(median), "median of all timed steps", title="median step"),
        Metric("p95_step_time", "s", "step_time.p95", "95th percentile of all timed steps", title="p95 step"),
        Metric("max_step_time", "s", _of_all_steps(max), "longest of all timed steps", title="max step"),
        unavailable_hint="needs the time of each step; on CUDA, polybench times blocks of steps",
    ),
    *_group(
        "training",
        Metric(
            "accuracy",
            "",
            "accuracy",
            better="higher",
            title="test accuracy",
            format_result=_format_accuracy,
            unavailable_hint="needs `--accuracy`",
        ),
        Metric(
            "time_to_accuracy",
            "s",
            "time_to_accuracy.seconds",
            format_result=lambda result: _format_time_to(result.time_to_accuracy),
            unavailable_hint="needs `--target-accuracy`",
        ),
        Metric("test_loss", "", "test_loss", format_result=_format_test_loss, unavailable_hint="needs `--accuracy`"),
        Metric(
            "time_to_loss",
            "s",
            "time_to_loss.seconds",
            format_result=lambda result: _format_time_to(result.time_to_loss),
            unavailable_hint="needs `--target-loss`",
        ),
    ),
    # Each engine has its own source of these four, the result's `source`, so engines cannot be compared.
    *_group(
        "allocation",
        Metric("alloc_bytes_per_step", "B", "allocations.host.bytes_per_step"),
        Metric("allocs_per_step", "", "allocations.host.count_per_step"),
    ),
    *_group(
        "allocation",
        Metric("device_alloc_bytes_per_step", "B", "allocations.device.bytes_per_step"),
        Metric("device_allocs_per_step", "", "allocations.device.count_per_step"),
        unavailable_hint="needs a CUDA device; see `polybench doctor`",
    ),
    *_group(
        "allocation",
        Metric(
            "native_bytes_per_step",
            "B",
            "allocations.native.bytes_per_step",
            "requested from the C library and the kernel; counted the same way in every engine",
            title="allocated per step",
            format_result=_format_native_bytes,
        ),
        Metric("native_allocs_per_step", "", "allocations.native.count_per_step"),
        Metric(
            "native_bytes_vs_baseline",
            "",
            "allocations.native.ratio_to_baseline",
            "ratio of `native_bytes_per_step` to that of `--baseline`",
        ),
        Metric(
            "native_peak_live",
            "B",
            "allocations.native.peak_live_bytes",
            "maximum of the bytes that training steps have allocated and not yet freed",
            title="native peak live bytes",
        ),
        Metric(
            "native_allocs_lt_1kib",
            "",
            "allocations.native.by_size.lt_1kib",
            "native allocations below 1 KiB",
            title="native allocs < 1 KiB per step",
        ),
        Metric(
            "native_allocs_1kib_256kib",
            "",
            "allocations.native.by_size.ge_1kib_lt_256kib",
            "native allocations from 1 KiB to below 256 KiB",
            title="native allocs 1-256 KiB per step",
        ),
        Metric(
            "native_allocs_ge_256kib",
            "",
            "allocations.native.by_size.ge_256kib",
            "native allocations of 256 KiB or more",
            title="native allocs >= 256 KiB per step",
        ),
        unavailable_hint=f"needs memray (`{install_command('memray')}`) and `--metrics`",
    ),
    *_group(
        "allocation",
        Metric("gc_time", "s", "gc.seconds_per_step", title="GC time per step"),
        Metric("full_gcs", "", "gc.full_collections", title="full GCs", format_value=units.format_count),
        unavailable_hint="no engine of this study reports its garbage collector",
    ),
    *_group(
        "startup",
        Metric(
            "cold_start",
            "s",
            "startup.cold_start_seconds",
            "from the start of the process to the end of the first step",
            title="start",
            ci95="startup.ci95",
        ),
        Metric("process_start_time", "s", "startup.process_seconds", title="process start"),
        Metric("import_time", "s", "startup.import_seconds", title="import"),
        Metric("build_time", "s", "startup.build_seconds", title="build"),
        Metric("data_to_device_time", "s", "startup.data_seconds", title="data to device"),
        Metric("first_step", "s", "startup.first_step_seconds", "includes compilation, tracing and autotuning"),
        Metric("second_step", "s", "startup.second_step_seconds"),
        Metric(
            "break_even_steps",
            "",
            lambda result: found.steps if (found := _break_even(result)) else None,
            "steps after which a slower cold start is repaid",
            title="break-even steps",
            format_result=_format_break_even,
        ),
    ),
    *_group(
        "memory",
        Metric("peak_memory", "B", "memory.peak_rss_bytes", "largest resident set of the process", title="memory"),
        Metric("memory_after_import", "B", "memory.rss_after_import_bytes", "resident after the framework's import"),
        Metric("private_memory", "B", "memory.rss_anon_bytes", "anonymous resident pages"),
        Metric(
            "file_mapped_memory",
            "B",
            "memory.rss_file_bytes",
            "resident pages of mapped files",
            title="file-mapped memory",
        ),
        Metric(
            "step_peak_increase", "B", "memory.step_peak_increase_bytes", "increase of the peak during training steps"
        ),
        Metric("device_peak_memory", "B", "memory.device_peak_bytes", "reported by the engine"),
        Metric("device_memory_nvml", "B", "memory.device_nvml_bytes", title="device memory (NVML)"),
        Metric(
            "memory_growth",
            "B",
            "memory.growth_bytes_per_step",
            "memory in use that each training step adds",
            title="memory growth per step",
            ci95="memory.growth_ci95",
        ),
    ),
    *_group(
        "utilization",
        Metric("cpu_utilization", "%", "utilization.cpu_percent", better=None, title="CPU use"),
        Metric("gpu_utilization", "%", "utilization.gpu_percent", better="higher", title="GPU use"),
        Metric("power", "W", "utilization.power"),
        Metric("temperature", "°C", "utilization.temperature", title="GPU °C"),
        Metric(
            "throttle_reasons",
            None,
            lambda result: ", ".join(result.utilization.throttle_reasons or ()) or None,
            better=None,
            title="throttled by",
            unavailable_hint="clocks were not throttled, or cannot be read; see `polybench doctor`",
        ),
        Metric("energy", "J", "energy.joules_per_epoch", title="energy per epoch"),
    ),
    *_group(
        "interference",
        Metric(
            "page_faults",
            "",
            "interference.minor_faults_per_step",
            "pages that the kernel mapped, for example after the C library had returned memory to it",
            title="page faults per step",
        ),
        Metric(
            "context_switches",
            "",
            _context_switches,
            "voluntary and involuntary, all threads",
            title="context switches per step",
        ),
        Metric(
            "cpu_wait_time",
            "s",
            "interference.cpu_wait_seconds_per_step",
            "time in which threads were ready to run but had no core, summed over threads",
            title="CPU wait per step",
        ),
    ),
    # As in the comparison of cloud CPUs and GPUs of 2017: https://minimaxir.com/2017/07/cpu-or-gpu/
    Metric(
        "cost_per_epoch",
        "$",
        "cost.dollars_per_epoch",
        "with `--price cpu=0.24 --price cuda=3.06`, in dollars per hour",
        unavailable_hint=_NEEDS_PRICE,
    ),
    Metric(
        "relative_cost",
        "",
        "cost.relative",
        ci95="cost.ci95",
        comparison="cost",
        format_result=lambda result: (
            units.format_with_margin(cost.relative, cost.ci95) if (cost := result.cost) and cost.relative else ""
        ),
        unavailable_hint=_NEEDS_PRICE,
    ),
    *_group(
        "speed",
        Metric(
            "pct_of_peak",
            "",
            "peak.fraction",
            "FLOP/s of a step as a fraction of the fastest matrix product that `polybench peak` measured on"
            " this machine; FLOPs are those of direct convolutions, so Winograd convolutions can exceed 100 %",
            better="higher",
            title="% of peak",
            format_value=units.format_percent,
            unavailable_hint="needs `polybench peak` before the study, with the same threads, malloc policy, precision"
            " and versions",
        ),
    ),
    Metric(
        "parity",
        None,
        "parity.status",
        better=None,
        title="result",
        format_value={"pass": "same", "fail": "DIFFERS", "skipped": "not checked"}.__getitem__,
    ),
)

METRICS = Registry("metric", Metric)
METRICS |= {metric.name: metric for metric in _METRICS}
"""Every metric by name, in the order of the columns."""

DEFAULT_COLUMNS = (
    "step_time",
    "speedup",
    "parity",
    "data_parallel",
    "parallel_efficiency",
    "allreduce_share",
    "data_wait_time",
    "accuracy",
    "time_to_accuracy",
    "test_loss",
    "time_to_loss",
    "throughput",
    "peak_memory",
    "cold_start",
    "gpu_speedup",
    "relative_cost",
    "cost_per_epoch",
    "energy",
    "pct_of_peak",
)
"""Columns in order of importance: a table shows those that have a value and fit (render.auto_columns)."""

_GROUPS = dict.fromkeys(group for metric in _METRICS for group in metric.groups)

GROUPS: dict[str, tuple[str, ...]] = {
    **{group: tuple(metric.name for metric in _METRICS if group in metric.groups) for group in _GROUPS},
    "all": tuple(METRICS),
}
"""Names that `--columns` accepts for several metrics at once."""


def select_metrics(names: Sequence[str]) -> list[Metric]:
    """Return the metrics with these names, each once; the name of a group selects all of its metrics.

    Raises:
        BadInput: a name is unknown; the message suggests the nearest valid one.
    """
    for name in names:
        lookup_or_suggest(name, METRICS.names() | dict.fromkeys(GROUPS), "column")
    rows = METRICS.rows() if GROUPS.keys() & names else {}
    members = {group: [metric.name for metric in rows.values() if group in ("all", *metric.groups)] for group in GROUPS}
    expanded = (member for name in names for member in members.get(name, [name]))
    return [METRICS.find(name) for name in dict.fromkeys(expanded)]


def in_table_order(metrics: Sequence[Metric]) -> list[Metric]:
    """Sort metrics into the order of METRICS, those of other packages last."""
    order = list(METRICS.names())
    return sorted(metrics, key=lambda metric: order.index(metric.name))
