"""Layer times: one row per operation, engines side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

from polybench.render.footnotes import peak_notes
from polybench.render.milliseconds import Milliseconds
from polybench.render.study import header_for
from polybench.render.table import (
    DEFAULTS,
    Column,
    Records,
    Sort,
    Table,
    TableOptions,
    name_column,
    one_line,
    with_reason,
)
from polybench.render.verdicts import busy_sentences
from polybench.schema import units
from polybench.schema.measurements import STEP, ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.names import Namer, namer
from polybench.schema.result import BUSY, Interval, StepTimes
from polybench.stats.operation_sums import is_backward, select_pass, sum_operations

ORDERS: dict[str, Sort] = {order: order for order in get_args(Sort)}

_HEADING = "each operation timed alone, in ms"

Key = tuple[str, str]
"""Layer and operation."""

_LAYER_TOTAL, _TOTAL = "total of a layer", "total"
"""Operations of rows that sum up others."""

_PASSES = ("forward", "backward")
_SUM, _REST, _WHOLE = _ENDS = ("sum of operations", "between the layers", "whole step")
_STEP_NAME = "loss, update, call"

_MAX_REST_WIDTH = 0.5
"""Width of the interval of the time between the layers, as a fraction of a step, above which it has no result."""

_SLOWDOWN = "slowdown"
_OPTIONAL = {_SLOWDOWN: 1000, "%": 1001, "GFLOP/s": 1001, "% of peak": 1001, "GC": 1001}
"""Ranks of columns that a terminal omits if they do not fit, before those of configurations."""

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
    """Build a row per operation and per layer, and the totals of a step; the notes list what has no layer times."""
    name = namer(document)
    slowdowns = slowdown_by_operation(document)
    labels = _labels(document, options.sort)
    shown = [one for one in document.configurations if one.rows or one.step_seconds is not None or one.busy]
    baseline = find_baseline(document)
    columns = []
    for number, configuration in enumerate(shown, start=1):
        first, *others = _columns(configuration, name(configuration))
        columns.append((Column(first[0], numeric=True, optional=0 if configuration is baseline else number), first[1]))
        columns += [(Column(title, numeric=True, optional=_OPTIONAL[title]), texts) for title, texts in others]
    if slowdowns:
        by_name = {one.configuration: one for one in shown}
        wide = {(one.configuration, _key(row)) for one in shown for row in one.rows if row.has_wide_time}
        texts = {
            key: _format_slowdown(one, by_name[one.configuration], name)
            for key, one in slowdowns.items()
            if baseline and not {(one.configuration, key), (baseline.configuration, key)} & wide
        }
        columns.append((Column(_SLOWDOWN, numeric=True, optional=_OPTIONAL[_SLOWDOWN]), texts))
    rows = [[label, *(texts.get(key, "") for _, texts in columns)] for key, label in labels.items()]
    return Table(
        id=document.id,
        summary=busy_sentences(document.configurations, name),
        title=[*header_for(document.settings, document.host, _step_times(document)), _HEADING],
        columns=[name_column("layer", options.width), *(column for column, _ in columns)],
        rows=rows if _with_rows(document) else [],
        notes=list(_notes(document, name, [text for row in rows for text in row], compared=bool(slowdowns))),
    )


def _step_times(document: LayersDocument) -> list[StepTimes]:
    return [one.step_times for one in document.configurations if one.step_times]


def _labels(document: LayersDocument, sort: Sort) -> dict[Key, str]:
    """Return the keys of all rows with their texts: operations below the total of their layer, then those of the step.

    By slowdown, operations of all layers are mixed, so these have no totals.
    """
    labels: dict[Key, str] = {}
    by_layer: dict[str, list[Key]] = {}
    for key in sort_operations(document, sort):
        by_layer.setdefault(key[0], []).append(key)
        labels[key] = key[1] if key[0] == STEP else f"{key[0]}, {key[1]}"
    if sort == "network":
        labels = {}
        for layer, keys in by_layer.items():
            name = _STEP_NAME if layer == STEP else layer
            if len(keys) == 1:
                labels[keys[0]] = keys[0][1] if layer == STEP else f"{name}, {keys[0][1]}"
            else:
                labels |= {(layer, _LAYER_TOTAL): name} | {key: f"  {key[1]}" for key in keys}
    if any(one.unattributed_seconds is not None for one in document.configurations):
        rows = [row for one in document.configurations for row in one.rows]
        passes = _PASSES if any(map(is_backward, rows)) else ()
        labels |= {("", ""): ""} | {(end, _TOTAL): end for end in (*passes, *_ENDS)}
    return labels


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


def _columns(configuration: ConfigurationLayers, name: str) -> list[tuple[str, dict[Key, str]]]:
    """Format a configuration's columns: the title and the texts of each."""
    format, step = _format(configuration), configuration.step_seconds
    totals = _totals(configuration)
    operations = Counter(row.layer for row in configuration.rows)
    texts = {
        _key(row): format.format_part(row.seconds_per_step, row.ci95, margin=operations[row.layer] == 1)
        for row in configuration.rows
    }
    texts |= {key: format.format_part(*total, margin=True) for key, total in totals.items()}
    texts |= _ends(configuration, format)
    if configuration.busy:
        texts[_WHOLE, _TOTAL] = BUSY
    if not configuration.rows:
        return [(name, texts)]
    seconds = {_key(row): row.seconds_per_step for row in configuration.rows}
    seconds |= {key: total for key, (total, _) in totals.items()}
    known = {key: value for key, value in seconds.items() if texts[key] not in (format.noise, units.NO_RESULT)}
    rates = {_key(row): row.flops / known[_key(row)] for row in configuration.rows if row.flops and _key(row) in known}
    columns = [(name, texts)]
    if step:
        columns.append(("%", {key: f"{100 * value / step:.1f}" for key, value in known.items()}))
    columns.append(("GFLOP/s", {key: units.format_number(rate / 1e9) for key, rate in rates.items()}))
    if configuration.peak is not None:
        fractions = {key: rate / configuration.peak.flops_per_second for key, rate in rates.items()}
        if step and configuration.peak.fraction is not None:
            fractions[_WHOLE, _TOTAL] = configuration.peak.fraction
        columns.append(("% of peak", {key: f"{100 * value:.1f}" for key, value in fractions.items()}))
    gc = {
        _key(row): format.format(row.gc_seconds_per_step)
        for row in configuration.rows
        if row.gc_seconds_per_step is not None
    }
    return [*columns, ("GC", gc)] if gc else columns


def _format(configuration: ConfigurationLayers) -> Milliseconds:
    longest = max((row.seconds_per_step for row in configuration.rows), default=0.0)
    return Milliseconds.for_step(configuration.step_seconds or longest)


def _totals(configuration: ConfigurationLayers) -> dict[Key, tuple[float, Interval | None]]:
    """Sum the operations of each layer, and those of each pass, with their intervals."""
    by_layer: dict[str, list[LayerRow]] = {}
    for row in configuration.rows:
        by_layer.setdefault(row.layer, []).append(row)
    groups = {(layer, _LAYER_TOTAL): rows for layer, rows in by_layer.items()}
    groups |= {
        (name, _TOTAL): rows
        for name in _PASSES
        if (rows := select_pass(configuration.rows, backward=name == "backward"))
    }
    if configuration.unattributed_seconds is not None:
        groups[_SUM, _TOTAL] = configuration.rows
    return {key: sum_operations(rows) for key, rows in groups.items() if rows}


def _ends(configuration: ConfigurationLayers, format: Milliseconds) -> dict[Key, str]:
    """Format the time between the layers, which may be negative, and the whole step."""
    step, rest, interval = configuration.step_seconds, configuration.unattributed_seconds, configuration.ci95
    texts: dict[Key, str] = {}
    if step is not None:
        texts[_WHOLE, _TOTAL] = format.format_part(step, configuration.step_ci95, margin=True)
    if step is not None and rest is not None:
        is_wide = interval is not None and interval[1] - interval[0] > _MAX_REST_WIDTH * step
        texts[_REST, _TOTAL] = units.NO_RESULT if is_wide else format.with_margin(rest, interval)
    return texts


def _format_slowdown(slowdown: Slowdown, configuration: ConfigurationLayers, name: Namer) -> str:
    format = _format(configuration)
    is_small = format.is_noise(slowdown.seconds)
    return "" if is_small else f"{format.format(slowdown.seconds)} {name(configuration)}"


def _notes(document: LayersDocument, name: Namer, texts: Sequence[str], *, compared: bool) -> Iterator[str]:
    timed = _with_rows(document)
    noise = dict.fromkeys(text for text in texts if text.startswith("< "))
    if timed:
        yield _interval_note(document)
    if units.NO_RESULT in texts:
        yield f"{units.NO_RESULT}: the interval is too wide; use more --processes or an idle machine"
    if noise:
        yield f"{' or '.join(noise)} ms: too short, or a negative difference of two times; JSON and CSV have the value"
    if any(row.layer.endswith("+ relu") for one in timed for row in one.rows):
        yield "forward includes the ReLU"
    if any(one.unattributed_seconds is not None for one in timed):
        yield (
            f"{_REST}: the whole step, with garbage collection, minus the sum of its operations; negative if the step"
            " overlaps or fuses operations"
        )
    baseline = find_baseline(document)
    if compared and baseline:
        yield f"{_SLOWDOWN}: time beyond that of {name(baseline)}, in the slowest engine"
    yield from peak_notes(configuration.peak for configuration in timed if configuration.peak)
    for configuration in document.configurations:
        yield from _configuration_notes(configuration)
    yield from dict.fromkeys(map(one_line, document.warnings))


def _configuration_notes(configuration: ConfigurationLayers) -> Iterator[str]:
    name = configuration.configuration
    if configuration.parity == "fail":
        yield f"{name}: failed the parity check; see polybench parity"
    if configuration.rows and configuration.gc_seconds_per_step:
        gc = units.format_seconds(configuration.gc_seconds_per_step)
        yield f"{name}: garbage collection takes {gc} of a step; the GC column lists it per operation"
    if configuration.status == "ok" and not configuration.rows and not configuration.busy:
        reason = ", because the step is compiled or timed as a whole" if configuration.compiled_as_whole else ""
        yield f"{name}: no layer times{reason}"
    if configuration.status != "ok":
        yield f"{name}: {with_reason(configuration.status, configuration.reason, configuration.hint)}"


def _interval_note(document: LayersDocument) -> str:
    processes = max((len(one.values) for one in _step_times(document)), default=0)
    return f"±: half of the 95% interval, {f'over {processes} processes' if processes > 1 else 'within one process'}"
