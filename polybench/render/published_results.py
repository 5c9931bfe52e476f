"""Published results, in a block separate from everything that polybench measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

from polybench.render.table import Table, text_columns
from polybench.schema import units
from polybench.schema.measurements import SweepPoint
from polybench.schema.metadata import PublishedMetric, PublishedResult
from polybench.schema.metrics import METRICS
from polybench.schema.options import Workload
from polybench.schema.result import Result

TITLE = "published (not measured here)"

_FORMATS: dict[PublishedMetric, tuple[Callable[[float], str], str]] = {
    "epoch_time": (units.format_seconds, "times as long"),
    "step_time": (units.format_seconds, "times as long"),
    "throughput": (units.format_count, "times as many"),
    "steps_per_second": (units.format_count, "times as many"),
    "gpu_speedup": (units.format_number, "times"),
    "accuracy": (units.format_number, "times as high"),
}
"""Format of a measured value, and the words after the ratio."""


class MeasuredConfiguration(NamedTuple):
    """A configuration that polybench measured."""

    configuration: str
    workload: Workload
    values: Mapping[str, float | str | None]
    """Values of the metrics that published results may contain; `epoch_time` is the time of a single item."""
    epochs: int | None = None
    """Epochs before the accuracy was measured; None if trainings differ in their number."""
    has_interference: bool = False
    """Too much interference affected the step times."""


def from_study(results: Sequence[Result]) -> list[MeasuredConfiguration]:
    """Collect the ranked configurations of a study."""
    found = []
    for result in results:
        if result.is_ranked:
            values = {name: METRICS[name].value(result) for name in get_args(PublishedMetric)}
            values["epoch_time"] = result.step_seconds / result.workload.batch_size
            epochs = {len(training.epochs) for training in result.trainings if training.complete}
            count = epochs.pop() if len(epochs) == 1 else None
            excessive = result.interference.is_excessive
            found.append(MeasuredConfiguration(result.configuration, result.workload, values, count, excessive))
    return found


def from_sweep(points: Sequence[SweepPoint]) -> list[MeasuredConfiguration]:
    """Collect the ranked configurations of all points, the fastest first."""
    found = []
    for point in points:
        for result in point.configurations:
            if point.workload is not None and result.speedup is not None:
                seconds = result.step_seconds
                values = {
                    "epoch_time": seconds / point.workload.batch_size if seconds else None,
                    "step_time": seconds,
                    "throughput": result.items_per_second,
                    "steps_per_second": 1 / seconds if seconds else None,
                }
                found.append(MeasuredConfiguration(result.configuration, point.workload, values))
    return sorted(found, key=lambda one: -float(one.values["throughput"] or 0))


def table(published: Sequence[PublishedResult], measured: Sequence[MeasuredConfiguration] = ()) -> Table | None:
    """Build a row per published result, in the order of the study file; None without any.

    If some configuration repeats a published result, the rows have its value and the ratio of both.
    """
    if not published:
        return None
    has_comparison = any(_measured_values(one, measured) for one in published)
    titles = ("engine", "hardware", "quantity", "value", *(("measured here", "ratio") if has_comparison else ()))
    return Table(
        title=[TITLE],
        columns=text_columns(*titles),
        rows=[
            [one.label, one.hardware, one.quantity, f"{_format_value(one.value)} {one.unit}".rstrip()]
            + (_comparison(one, measured) if has_comparison else [])
            for one in published
        ],
        notes=_notes(published, measured),
    )


def _comparison(published: PublishedResult, measured: Sequence[MeasuredConfiguration]) -> list[str]:
    values = _measured_values(published, measured)
    if not values:
        return ["", ""]
    ends = published.value if isinstance(published.value, tuple) else (published.value,)
    ratios = sorted(one / other for one in (min(ends), max(ends)) for other in (min(values), max(values)))
    format_metric, words = _FORMATS[published.metric]
    name = published.configuration or units.plural(len(values), "configuration")
    return [f"{name} {_range(format_metric, values)}", f"{_range(units.format_number, ratios)} {words}"]


def _range(format_one: Callable[[float], str], values: Sequence[float]) -> str:
    """Format the smallest and the largest value, or the only one."""
    return " to ".join(dict.fromkeys((format_one(min(values)), format_one(max(values)))))


def _measured_values(published: PublishedResult, measured: Sequence[MeasuredConfiguration]) -> list[float]:
    """Collect the values of configurations that repeat a published result, for as many epochs or steps.

    If the published result names a configuration, only its first value counts.
    """
    values = (
        one.values.get(published.metric)
        for one in measured
        if _is_same_network(published, one) and not _differences(published, one)
    )
    count = published.count_in_value
    found = [count * value for value in values if isinstance(value, float) and value] if count else []
    return found[:1] if published.configuration else found


def _is_same_network(published: PublishedResult, measured: MeasuredConfiguration) -> bool:
    any_configuration = published.configuration is None and published.metric == "accuracy"
    is_same = any_configuration or published.configuration == measured.configuration
    return is_same and published.model in (None, measured.workload.model)


def _differences(published: PublishedResult, measured: MeasuredConfiguration) -> list[str]:
    workload = measured.workload
    found = []
    if published.count_in_value is None:
        found.append("the publication's items per epoch are unknown (`items_per_epoch`)")
    if workload.is_forward_pass:
        found.append("the forward pass here, training in the publication")
    has_accuracy = published.metric == "accuracy" and measured.values.get("accuracy")
    if has_accuracy and measured.epochs != published.epochs:
        epochs = "different numbers of epochs" if measured.epochs is None else units.plural(measured.epochs, "epoch")
        found.append(f"accuracy after {epochs} here, after {published.epochs} in the publication")
    if published.batch_size not in (None, workload.batch_size):
        found.append(f"batch size {workload.batch_size} here, {published.batch_size} in the publication")
    if published.augment not in (None, workload.augment):
        augmented = ["not augmented", "augmented"]
        here, there = augmented[workload.augment], augmented[not workload.augment]
        found.append(f"images {here} here, {there} in the publication")
    if measured.has_interference and published.metric != "accuracy":
        found.append("cannot tell: too much interference")
    return found


def _notes(published: Sequence[PublishedResult], measured: Sequence[MeasuredConfiguration]) -> list[str]:
    """List each source once, and reasons why a configuration with the same network has no ratio."""
    reasons = [
        f"no ratio for {configuration.configuration}: {difference}"
        for result in published
        if result.configuration is None or not _measured_values(result, measured)
        for configuration in measured
        if _is_same_network(result, configuration)
        for difference in _differences(result, configuration)
    ]
    items = [one.items_per_epoch for one in published if one.metric == "epoch_time" and _measured_values(one, measured)]
    return [
        *(f"source: {source}" for source in dict.fromkeys(result.source for result in published)),
        *(f"measured here: the time of {count:,} items, by the mean step" for count in dict.fromkeys(items)),
        *dict.fromkeys(reasons),
    ]


def _format_value(value: float | tuple[float, ...]) -> str:
    """Format all published digits, without rounding."""
    if isinstance(value, tuple):
        return " to ".join(map(_format_value, value))
    return f"{value:,.12g}"
