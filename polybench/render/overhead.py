"""Fixed overhead of a training step."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.render.table import DEFAULTS, INTERVALS, Column, Records, Table, TableOptions, name_text, text_columns
from polybench.schema import units
from polybench.schema.measurements import ConfigurationOverhead, OverheadDocument, OverheadIntervals


def table(document: OverheadDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per configuration: its overhead, and the time that every item adds."""
    model = units.format_model(document.model, document.pass_)
    numbers = ("overhead per step", f"time per {document.input_kind}", "50% at batch", "Python call")
    return Table(
        id=document.id or "",
        title=[
            *filter(None, [name_text(document.title, document.tags)]),
            f"{model}, {units.plural(document.threads, 'thread')} on {document.host.cpu}",
        ],
        columns=[
            *text_columns("engine"),
            *(Column(title, numeric=True, optional=int(title in numbers[2:])) for title in numbers),
        ],
        rows=[_row(configuration) for configuration in document.configurations],
        notes=[*_notes(document), *document.warnings],
    )


def records(document: OverheadDocument, _: TableOptions) -> Records:
    """List a record per configuration."""
    fields = ["configuration", "status"]
    for name in ("overhead_seconds", "seconds_per_item"):
        fields += [name, f"{name}_low", f"{name}_high"]
    single = ("batch_size_at_50pct_overhead", "python_call_overhead_seconds", "max_relative_residual")
    rows = [
        [
            one.configuration,
            one.status,
            *(one.overhead_seconds, *(one.ci95.overhead_seconds or (None, None))),
            *(one.seconds_per_item, *(one.ci95.seconds_per_item or (None, None))),
            *(getattr(one, name) for name in single),
        ]
        for one in document.configurations
    ]
    return Records([*fields, *single], rows)


def _row(configuration: ConfigurationOverhead) -> list[str]:
    if configuration.overhead_seconds is None or configuration.seconds_per_item is None:
        return [configuration.configuration, configuration.status, "", "", ""]
    if not configuration.is_linear:
        return [configuration.configuration, "not linear", "", "", ""]
    half = configuration.batch_size_at_50pct_overhead
    call = configuration.python_call_overhead_seconds
    return [
        configuration.configuration,
        units.format_seconds_with_ci(configuration.overhead_seconds, configuration.ci95.overhead_seconds),
        units.format_seconds_with_ci(configuration.seconds_per_item, configuration.ci95.seconds_per_item),
        "" if half is None else units.format_number(half, digits=2),
        "" if call is None else units.format_seconds(call),
    ]


def _notes(document: OverheadDocument) -> Iterator[str]:
    has_intervals = any(one.ci95 != OverheadIntervals(None, None) for one in document.configurations)
    sizes = dict.fromkeys(point.batch_size for one in document.configurations for point in one.points)
    yield (
        f"linear fit over batch sizes {', '.join(map(units.format_count, sorted(sizes)))}:"
        f" step time = overhead + batch size x time per {document.input_kind};"
        " 50% at batch: batch size at which the overhead is half of the step time"
        + (f"; {INTERVALS}" if has_intervals else "")
    )
    if any(one.python_call_overhead_seconds is not None for one in document.configurations):
        yield (
            "Python call: cost of calling the engine's step loop from Python, without the steps; includes the"
            " bridge to Julia and collections that gc_off moves out of steps; not part of the overhead"
        )
    for configuration in document.configurations:
        residual = configuration.max_relative_residual
        if residual is not None and not configuration.is_linear:
            yield (
                f"{configuration.configuration}: a point is {units.format_percent(residual)} off the fit;"
                f" the time per {document.input_kind} depends on the batch size"
            )
        if configuration.reason:
            yield f"{configuration.configuration}: {configuration.status}: {configuration.reason}"
