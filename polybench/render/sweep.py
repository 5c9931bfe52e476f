"""A sweep: every configuration at every point, the costs, and the best points."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from polybench.render import published_results
from polybench.render.study import short_cpu
from polybench.render.table import (
    DEFAULTS,
    INTERVALS,
    Column,
    Records,
    Table,
    TableOptions,
    name_text,
    number_columns,
    text_columns,
)
from polybench.schema import units
from polybench.schema.measurements import PointReference, PointResult, SweepDocument, SweepPoint, ThreadPoolGrid
from polybench.schema.result import BUSY, mark_inconclusive

_OVERSUBSCRIBED = "*"
"""Mark of rows with more threads than cores."""

_COSTS = (
    *("epoch_seconds", "relative_time", "dollars_per_hour", "dollars_per_epoch", "relative_cost"),
    *("inconclusive_reason", "relative_inconclusive_reason"),
)


def table(sweep: SweepDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build a row per engine and a column per value of the only axis; with several axes, a row per point."""
    if len(sweep.axes) > 1:
        return points_table(sweep, options)
    by_configuration: dict[str, list[tuple[SweepPoint, PointResult]]] = {}
    for point, result in sort_points(sweep):
        by_configuration.setdefault(result.configuration, []).append((point, result))
    whole = points_table(sweep, options)
    ((axis, _),) = sweep.axes.items()
    values = list(dict.fromkeys(point.parameters[axis] for point in sweep.points))
    gains = {name: _gain(results) for name, results in by_configuration.items()}
    rates = f"{sweep.input_kind}s/s"
    intervals = f"; {INTERVALS}" if INTERVALS in whole.notes[0] else ""
    order = sorted(by_configuration, key=lambda name: -max(map(_rate, by_configuration[name])))
    return msgspec.structs.replace(
        whole,
        columns=[
            *text_columns(f"{rates} by {axis.replace('_', ' ')}"),
            *number_columns(*(units.format_axis_value(axis, value) for value in values), "best vs. first"),
        ],
        rows=[[name, *(_cell(by_configuration[name], axis, value) for value in values), gains[name]] for name in order],
        notes=[
            f"best vs. first: speed of the best value relative to the first{intervals}; ?: the interval contains 1",
            *whole.notes[1:],
        ],
    )


def _rate(point: tuple[SweepPoint, PointResult]) -> float:
    return point[1].items_per_second or 0.0


def _cell(results: list[tuple[SweepPoint, PointResult]], axis: str, value: int) -> str:
    """Format a configuration's throughput at a value, or what is in its place."""
    for point, result in results:
        if point.parameters[axis] == value:
            mark = f" {_OVERSUBSCRIBED}" if point.oversubscribed else ""
            if result.items_per_second is not None:
                return f"{units.format_count(round(result.items_per_second))}{mark}"
            return BUSY if result.busy else result.status
    return ""


def _gain(results: list[tuple[SweepPoint, PointResult]]) -> str:
    """Format the speed of a configuration's best value relative to its first, marked if that may be none."""
    best = max(results, key=_rate)[1]
    if best.speedup is None:
        return ""
    text = mark_inconclusive(units.format_with_ci(best.speedup, best.ci95), best.inconclusive_reason)
    unclear = best.ci95 is not None and best.ci95[0] <= 1 <= best.ci95[1] and text != units.NO_RESULT
    return f"{text} ?" if unclear else text


def points_table(sweep: SweepDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build the table in the order of the curves; configurations without a curve come last."""
    by_threads = "threads" in sweep.axes
    efficiency = ("efficiency",) if by_threads else ()
    title = filter(None, [name_text(sweep.title, sweep.tags)])
    costs = _cost_table(sweep)
    measured = published_results.from_sweep(sweep.points)
    model = units.format_model(sweep.model, sweep.pass_)
    return Table(
        id=sweep.id or "",
        title=[*title, _title(sweep, model)],
        columns=[
            *text_columns(*_label_titles(sweep)),
            *number_columns("step time", f"{sweep.input_kind}s/s", "speedup"),
            *(Column(title, numeric=True, optional=1) for title in efficiency),
        ],
        rows=[_row(point, result, by_threads) for point, result in sort_points(sweep)],
        tables=[*([costs] if costs else []), *map(_grid_table, sweep.thread_pools)],
        notes=[*_notes(sweep), *sweep.warnings],
        summary=list(_summary(sweep)),
        published=published_results.table(sweep.published if options.published else [], measured),
    )


def _title(sweep: SweepDocument, model: str) -> str:
    """Describe workload, machine and date; what the points vary is in the table."""
    workload = next((point.workload for point in sweep.points if point.workload), None)
    machine = f"{short_cpu(sweep.host)}, {units.plural(sweep.host.cores, 'core')}; {sweep.created[:10]}"
    if workload is None:
        return f"{model}; {machine}"
    data = f"synthetic {sweep.input_kind}s" if workload.dataset == "synthetic" else workload.dataset
    fixed = {"batch_size": f"batch {workload.batch_size}", "threads": units.plural(workload.threads, "thread")}
    texts = [text for axis, text in fixed.items() if axis not in sweep.axes]
    return f"{', '.join([f'{model} on {data}', *texts, workload.precision])}; {machine}"


def records(sweep: SweepDocument, _: TableOptions) -> Records:
    """List a record per configuration and point."""
    fields = [*sweep.axes, "configuration", "status", "step_seconds", "items_per_second", "speedup", "low", "high"]
    rows = [
        [
            *point.parameters.values(),
            *(result.configuration, result.status, result.step_seconds, result.items_per_second, result.speedup),
            *(result.ci95 or (None, None)),
            result.efficiency,
            *(getattr(result, name) for name in _COSTS),
            int(point.oversubscribed),
            point.id,
        ]
        for point in sweep.points
        for result in point.configurations
    ]
    return Records([*fields, "efficiency", *_COSTS, "oversubscribed", "study"], rows)


def sort_points(sweep: SweepDocument) -> list[tuple[SweepPoint, PointResult]]:
    """Group results by configuration, in the order of the curves; those without a curve come last."""
    results = [(point, result) for point in sweep.points for result in point.configurations]
    order = {curve.configuration: number for number, curve in enumerate(sweep.curves)}
    return sorted(results, key=lambda one: order.get(one[1].configuration, len(order)))


def _label_titles(sweep: SweepDocument) -> list[str]:
    return [*(axis.replace("_", " ") for axis in sweep.axes), "engine"]


def _labels(point: SweepPoint, result: PointResult) -> list[str]:
    name = f"{result.configuration} {_OVERSUBSCRIBED}" if point.oversubscribed else result.configuration
    return [*(units.format_axis_value(axis, value) for axis, value in point.parameters.items()), name]


def _row(point: SweepPoint, result: PointResult, by_threads: bool) -> list[str]:
    if result.step_seconds is None or result.items_per_second is None or result.speedup is None:
        return [*_labels(point, result), BUSY if result.busy else result.status, "", "", *([""] if by_threads else [])]
    efficiency = "" if result.efficiency is None else units.format_percent(result.efficiency)
    return [
        *_labels(point, result),
        units.format_seconds(result.step_seconds),
        units.format_count(round(result.items_per_second)),
        mark_inconclusive(units.format_with_ci(result.speedup, result.ci95), result.inconclusive_reason),
        *([mark_inconclusive(efficiency, result.inconclusive_reason)] if by_threads else []),
    ]


def _notes(sweep: SweepDocument) -> Iterator[str]:
    has_intervals = any(result.ci95 for point in sweep.points for result in point.configurations)
    yield (
        f"speedup: {sweep.input_kind}s/s relative to the first row of the engine"
        f"{f'; {INTERVALS}' if has_intervals else ''}"
    )
    if any(point.oversubscribed for point in sweep.points):
        yield f"{_OVERSUBSCRIBED} more threads than usable cores; step times are long and vary"
    for point in sweep.points:
        for result in point.configurations:
            if result.reason:
                yield f"{result.configuration}: {BUSY if result.busy else result.status}: {result.reason}"


def _summary(sweep: SweepDocument) -> Iterator[str]:
    if sweep.inconclusive_reason:
        yield f"Cannot tell: {sweep.inconclusive_reason}."
        return
    if fastest := _fastest(sweep):
        yield fastest
    if cheapest := _cheapest_epoch(sweep):
        yield cheapest


def _fastest(sweep: SweepDocument) -> str | None:
    """Name the best points of the two fastest configurations, and those that do not differ from the best."""
    curves = sorted(sweep.curves, key=lambda curve: -curve.best_items_per_second)
    if not curves:
        return None
    rates = [
        f"{curve.configuration} with {units.format_point(curve.best)},"
        f" {units.format_count(round(curve.best_items_per_second))}"
        for curve in curves[:2]
    ]
    text = f"Fastest: {rates[0]} {sweep.input_kind}s/s"
    if others := sweep.fastest[1:]:
        return f"{text}; no significant difference to {', '.join(map(_describe, others))}."
    return f"{text}; next: {rates[1]}." if rates[1:] else f"{text}."


def _cost_table(sweep: SweepDocument) -> Table | None:
    """Build a table of time and cost per epoch, relative to one configuration; None without any price.

    It follows a comparison of cloud CPUs from 2017: https://minimaxir.com/2017/07/cpu-or-gpu/
    """
    measured = [(point, one) for point, one in sort_points(sweep) if one.epoch_seconds is not None]
    if all(result.dollars_per_epoch is None for _, result in measured):
        return None
    reference = sweep.reference
    relative = (
        f", relative to {reference.configuration} at {units.format_point(reference.parameters)}" if reference else ""
    )
    return Table(
        title=[f"Time and cost per epoch{relative}"],
        columns=[
            *text_columns(*_label_titles(sweep)),
            *(
                Column(title, numeric=True, optional=int(title in ("$/hour", "relative time")))
                for title in ("$/hour", "epoch time", "relative time", "cost", "relative cost")
            ),
        ],
        rows=[[*_labels(point, result), *_costs(result)] for point, result in measured],
    )


def _costs(result: PointResult) -> list[str]:
    return [
        "" if result.dollars_per_hour is None else units.format_number(result.dollars_per_hour),
        "" if result.epoch_seconds is None else units.format_seconds(result.epoch_seconds),
        ""
        if result.relative_time is None
        else mark_inconclusive(units.format_number(result.relative_time), result.relative_inconclusive_reason),
        "" if result.dollars_per_epoch is None else f"${units.format_number(result.dollars_per_epoch)}",
        ""
        if result.relative_cost is None
        else mark_inconclusive(
            units.format_with_margin(result.relative_cost, result.relative_cost_ci95),
            result.relative_inconclusive_reason,
        ),
    ]


def _cheapest_epoch(sweep: SweepDocument) -> str | None:
    """Describe the point with the cheapest epoch, and those as cheap; None without any price."""
    if not sweep.cheapest:
        return None
    cheapest, *others = sweep.cheapest
    point = next(one for one in sweep.points if one.parameters == cheapest.parameters)
    dollars = next(one for one in point.configurations if one.configuration == cheapest.configuration).dollars_per_epoch
    text = f"Cheapest epoch: {_describe(cheapest)}: ${units.format_number(dollars or 0.0)}"
    return f"{text}; no significant difference to {', '.join(map(_describe, others))}" if others else text


def _describe(reference: PointReference) -> str:
    return f"{reference.configuration} at {units.format_point(reference.parameters)}"


def _grid_table(grid: ThreadPoolGrid) -> Table:
    """Build a row for each number of Julia threads, a column for each number of BLAS threads."""
    blas_sizes = sorted({sizes.blas for sizes in grid.sizes})
    times = {(sizes.julia, sizes.blas): units.format_seconds(sizes.step_seconds) for sizes in grid.sizes}
    for one in (grid.best, *grid.as_good):
        times[one.julia, one.blas] += " (best)"
    point = "".join(
        f", {axis.replace('_', ' ')} {units.format_count(value)}" for axis, value in grid.parameters.items()
    )
    return Table(
        title=[f"{grid.configuration}{point}: step time by Julia threads (rows) and BLAS threads (columns)"],
        columns=[*text_columns("Julia"), *number_columns(*(f"BLAS {blas}" for blas in blas_sizes))],
        rows=[
            [str(julia), *(times.get((julia, blas), "") for blas in blas_sizes)]
            for julia in sorted({sizes.julia for sizes in grid.sizes})
        ],
    )
