"""Layer times: one row per operation, engines side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

from polybench.render.footnotes import peak_notes
from polybench.render.study import header_for
from polybench.render.table import (
    DEFAULTS,
    INTERVALS,
    Column,
    Records,
    Sort,
    Table,
    TableOptions,
    one_line,
    text_columns,
    with_reason,
)
from polybench.render.verdicts import busy_sentences
from polybench.schema import units
from polybench.schema.measurements import STEP, ConfigurationLayers, LayerRow, LayersDocument

ORDERS: dict[str, Sort] = {order: order for order in get_args(Sort)}

Key = tuple[str, str]
"""Layer and operation."""

UNATTRIBUTED: Key = ("unattributed", "")
_SUM, _, _STEP = _TOTALS = [("sum of operations", ""), UNATTRIBUTED, ("whole step", "")]

_MIN_SECONDS = 1e-12
"""Less is rounding of 0."""

_BELOW_NOISE = "below noise"

_OPTIONAL = {"slowdown ms": 1, "%": 2, "GFLOP/s": 2, "% of peak": 2, "GC ms": 2}
"""Ranks of columns that a terminal omits if they do not fit."""

_FIELDS = (
    "configuration", "layer", "operation", "seconds_per_step [s]", "low [s]", "high [s]", "share", "flops",
    "flops_per_second", "fraction_of_peak", "min_bytes_moved [B]", "gc_seconds_per_step [s]", "native_bytes [B]",
    "slowdown [s]",
)  # fmt: skip
"""Fields of a record, with their units."""


class Slowdown(NamedTuple):
    """Time of an operation beyond that of the baseline, in the slowest configuration."""

    seconds: float
    configuration: str


def table(document: LayersDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build a row per operation; the notes list configurations without layer times."""
    timed = _with_rows(document)
    slowdowns = slowdown_by_operation(document)
    keys = sort_operations(document, options.sort)
    columns = [column for configuration in timed for column in _columns(configuration)]
    if any(configuration.unattributed_seconds is not None for configuration in timed):
        keys = [*keys, ("", ""), *_TOTALS]
    if slowdowns:
        columns.append(("slowdown ms", {key: _format_slowdown(one) for key, one in slowdowns.items()}))
    step_times = [one.step_times for one in document.configurations if one.step_times]
    return Table(
        id=document.id,
        summary=busy_sentences(document.configurations),
        title=header_for(document.settings, document.host, step_times),
        columns=[
            *text_columns("layer", "operation"),
            *(Column(title, numeric=True, optional=_OPTIONAL.get(title, 0)) for title, _ in columns),
        ],
        rows=[[*key, *(texts.get(key, "") for _, texts in columns)] for key in keys] if timed else [],
        notes=list(_notes(document, timed, compared=bool(slowdowns))),
    )


def records(document: LayersDocument, options: TableOptions) -> Records:
    """List a record for each operation of each configuration."""
    return Records(_FIELDS, [list(record.values()) for record in layer_records(document, options.sort)])


def layer_records(document: LayersDocument, sort: Sort = "network") -> list[dict[str, Any]]:
    """List a record for each operation of each configuration, in SI units, as in CSV."""
    baseline = find_baseline(document)
    baseline_seconds = {_key(row): row.seconds_per_step for row in baseline.rows} if baseline else {}
    order = {key: number for number, key in enumerate(sort_operations(document, sort))}
    found = [(configuration, row) for configuration in document.configurations for row in configuration.rows]
    return [
        _record(configuration, row, baseline_seconds.get(_key(row)))
        for configuration, row in sorted(found, key=lambda one: order[_key(one[1])])
    ]


def _record(configuration: ConfigurationLayers, row: LayerRow, baseline_seconds: float | None) -> dict[str, Any]:
    seconds, step, peak = row.seconds_per_step, configuration.step_seconds, configuration.peak
    share = seconds / step if step else None
    rate = row.flops / seconds if row.flops and seconds > 0 else None
    fraction = rate / peak.flops_per_second if rate and peak else None
    slowdown = None if baseline_seconds is None else seconds - baseline_seconds
    values = (
        configuration.configuration, row.layer, row.operation, seconds, *(row.ci95 or (None, None)), share, row.flops,
        rate, fraction, row.min_bytes_moved, row.gc_seconds_per_step, row.native_bytes, slowdown,
    )  # fmt: skip
    return dict(zip((field.partition(" ")[0] for field in _FIELDS), values, strict=True))


def sort_operations(document: LayersDocument, sort: Sort) -> list[Key]:
    """List the operations of all configurations, in network order or by decreasing slowdown."""
    keys = list(dict.fromkeys(_key(row) for one in document.configurations for row in one.rows))
    if sort == "network":
        return keys
    slowdowns = slowdown_by_operation(document)
    return sorted(keys, key=lambda key: -slowdowns[key].seconds if key in slowdowns else 0.0)


def slowest(document: LayersDocument) -> LayerRow | None:
    """Find the layer's operation with the largest slowdown; without a comparison, the longest one."""
    slowdowns = {key: slowdown.seconds for key, slowdown in slowdown_by_operation(document).items()}
    rows = {_key(row): row for one in document.configurations for row in one.rows if row.layer != STEP}
    seconds = slowdowns or {key: row.seconds_per_step for key, row in rows.items()}
    return max(rows.values(), key=lambda row: seconds.get(_key(row), 0.0), default=None)


def find_baseline(document: LayersDocument) -> ConfigurationLayers | None:
    """Find the study's baseline; if it has no layer times, the first configuration that has some."""
    timed = _with_rows(document)
    baseline = document.settings.baseline
    return next((one for one in timed if one.configuration == baseline), next(iter(timed), None))


def slowdown_by_operation(document: LayersDocument) -> dict[Key, Slowdown]:
    """Find the slowest configuration of each operation; empty if there is nothing to compare."""
    baseline = find_baseline(document)
    if baseline is None:
        return {}
    seconds = {_key(row): row.seconds_per_step for row in baseline.rows}
    slowdowns: dict[Key, Slowdown] = {}
    for configuration in _with_rows(document):
        for row in configuration.rows if configuration is not baseline else ():
            difference = row.seconds_per_step - seconds.get(_key(row), 0.0)
            slowdown = Slowdown(difference, configuration.configuration)
            slowdowns[_key(row)] = max(slowdown, slowdowns.get(_key(row), slowdown))
    return slowdowns


def _with_rows(document: LayersDocument) -> list[ConfigurationLayers]:
    return [configuration for configuration in document.configurations if configuration.rows]


def _key(row: LayerRow) -> Key:
    return row.layer, row.operation


def _columns(configuration: ConfigurationLayers) -> list[tuple[str, dict[Key, str]]]:
    """Format a configuration's columns: the title and the texts of each."""
    step, unattributed = configuration.step_seconds or 0.0, configuration.unattributed_seconds
    measured = {_key(row): row.seconds_per_step for row in configuration.rows}
    noise = {key: _BELOW_NOISE for key, value in measured.items() if value < 0}
    seconds = {key: value for key, value in measured.items() if key not in noise}
    if unattributed is not None:
        seconds |= {_SUM: step - unattributed, UNATTRIBUTED: unattributed, _STEP: step}
    timed = [row for row in configuration.rows if row.seconds_per_step > _MIN_SECONDS]
    rates = {_key(row): row.flops / row.seconds_per_step for row in timed if row.flops}
    columns = [
        (f"{configuration.configuration} ms", noise | {key: _ms(value) for key, value in seconds.items()}),
        *([("%", {key: f"{100 * value / step:.1f}" for key, value in seconds.items()})] if step else []),
        ("GFLOP/s", {key: units.format_number(rate / 1e9) for key, rate in rates.items()}),
    ]
    if configuration.peak is not None:
        peak = configuration.peak.flops_per_second
        fractions = {key: rate / peak for key, rate in rates.items()}
        if unattributed is not None and configuration.peak.fraction is not None:
            fractions[_STEP] = configuration.peak.fraction
        columns.append(("% of peak", {key: f"{100 * value:.1f}" for key, value in fractions.items()}))
    gc = {_key(row): _ms(row.gc_seconds_per_step) for row in configuration.rows if row.gc_seconds_per_step is not None}
    return [*columns, ("GC ms", gc)] if gc else columns


def _ms(seconds: float) -> str:
    """Format milliseconds: 12.3, 0.456; values below 0.1 have three decimals."""
    value = 1e3 * seconds
    return units.format_number(value) if abs(value) >= 0.1 else f"{value:.3f}"


def _format_slowdown(slowdown: Slowdown) -> str:
    return f"{_ms(slowdown.seconds)} {slowdown.configuration}" if slowdown.seconds > 0 else ""


def _notes(document: LayersDocument, timed: Sequence[ConfigurationLayers], *, compared: bool) -> Iterator[str]:
    for configuration in timed:
        unattributed, step = configuration.unattributed_seconds, configuration.step_seconds
        if unattributed is not None and step:
            text = f"{_with_interval(unattributed, configuration.ci95)} ms, {unattributed / step:.1%} of a step"
            yield f"{configuration.configuration}: unattributed {text}"
    if any(configuration.unattributed_seconds is not None for configuration in timed):
        yield (
            "unattributed: the whole step, with garbage collection, minus the sum of its operations; negative if the"
            " step overlaps or fuses operations"
        )
    if any(row.seconds_per_step < 0 for configuration in timed for row in configuration.rows):
        yield f"{_BELOW_NOISE}: a difference of two measured times that came out negative; JSON and CSV have its value"
    if timed:
        yield "forward: includes the ReLU; activation: the gradient of the ReLU"
        yield _interval_note(document)
        yield from peak_notes(configuration.peak for configuration in timed if configuration.peak)
    baseline = find_baseline(document)
    if compared and baseline:
        yield f"slowdown: time beyond that of {baseline.configuration}, in the slowest configuration"
    for configuration in document.configurations:
        yield from _configuration_notes(configuration)
    yield from map(one_line, document.warnings)


def _configuration_notes(configuration: ConfigurationLayers) -> Iterator[str]:
    name = configuration.configuration
    if configuration.parity == "fail":
        yield f"{name}: failed the parity check; see polybench parity"
    if configuration.rows and configuration.gc_seconds_per_step is not None:
        gc = _ms(configuration.gc_seconds_per_step)
        yield f"{name}: garbage collection takes {gc} ms of a step; the GC column lists it per operation"
    if configuration.step_seconds and not configuration.rows:
        reason = ", because the step is compiled as a whole" if configuration.compiled_as_whole else ""
        step = _with_interval(configuration.step_seconds, configuration.step_ci95)
        yield f"{name}: whole step {step} ms; no layer times{reason}"
    if configuration.status != "ok":
        yield f"{name}: {with_reason(configuration.status, configuration.reason, configuration.hint)}"


def _interval_note(document: LayersDocument) -> str:
    processes = [len(one.step_times.values) for one in document.configurations if one.step_times]
    return INTERVALS if max(processes, default=0) > 1 else "intervals: 95% confidence, within a single process"


def _with_interval(seconds: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return _ms(seconds)
    low, high = interval
    return f"{_ms(seconds)} ({_ms(low)} to {_ms(high)})"
