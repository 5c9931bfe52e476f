"""The fixed cost of each cell's step as text."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from polybench.core import units
from polybench.core.document.overhead import EngineOverhead, Interval, OverheadDocument, OverheadIntervals
from polybench.export.records import INTERVALS, below, comma_separated, laid_out

_NO_LINE = 0.15
"""A point that is this far off, as a fraction, shows that the cost is no line."""


def render(overhead: OverheadDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS."""
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(overhead), indent=1).decode() + "\n"
    if format == "csv":
        return _csv(overhead)
    header = ["cell", "fixed cost a step", "cost a sample", "half at batch", "call"]
    lines = [_line(engine) for engine in overhead.engines]
    title = f"{overhead.model}, {units.plural(overhead.threads, 'thread')} on {overhead.host.cpu}"
    markdown = format == "markdown"
    table = laid_out(header, lines, left=1, markdown=markdown)
    notes = below((*_sentences(overhead), *overhead.warnings), markdown=markdown)
    return "\n\n".join([title, table, notes]) + "\n"


def _line(engine: EngineOverhead) -> list[str]:
    if engine.fixed_seconds is None or engine.seconds_per_sample is None:
        return [engine.cell, engine.status, "", "", ""]
    return [
        engine.cell,
        _seconds(engine.fixed_seconds, engine.intervals.fixed_seconds),
        _seconds(engine.seconds_per_sample, engine.intervals.seconds_per_sample),
        "" if engine.half_batch is None else units.number(engine.half_batch, digits=2),
        "" if engine.call_seconds is None else units.seconds(engine.call_seconds),
    ]


def _seconds(value: float, interval: Interval | None) -> str:
    text = units.seconds(value)
    if interval is None:
        return text
    low, high = (units.seconds(max(0.0, bound)) for bound in interval)
    return f"{text} ({low} to {high})"


def _sentences(overhead: OverheadDocument) -> Iterator[str]:
    known = any(engine.intervals != OverheadIntervals(None, None) for engine in overhead.engines)
    sizes = dict.fromkeys(point.batch_size for engine in overhead.engines for point in engine.points)
    yield (
        f"a line through batch sizes {', '.join(map(units.count, sorted(sizes)))}: a step costs the fixed"
        f" cost, and the cost of a sample for each of its {overhead.unit}s; at the batch size of"
        " the column 'half at batch' both are half" + (f"; {INTERVALS}" if known else "")
    )
    if any(engine.call_seconds is not None for engine in overhead.engines):
        yield (
            "call: what a call of the engine's step loop from Python takes beside the step itself, for Flux"
            " the bridge to Julia, and the collections that gc_off keeps out of steps; it is in no step's"
            " time, and not in the fixed cost"
        )
    for engine in overhead.engines:
        if engine.worst is not None and engine.worst > _NO_LINE:
            off = units.percent(engine.worst)
            yield f"{engine.cell}: a point is {off} off the line: its cost a sample depends on the batch size"
        if engine.reason:
            yield f"{engine.cell}: {engine.status}: {engine.reason}"


def _csv(overhead: OverheadDocument) -> str:
    header = ["cell", "status", "fixed_seconds", "fixed_low", "fixed_high"]
    header += [
        "seconds_per_sample",
        "seconds_per_sample_low",
        "seconds_per_sample_high",
        "half_batch",
        "call_seconds",
        "worst",
    ]
    lines = [
        [
            engine.cell,
            engine.status,
            engine.fixed_seconds,
            *(engine.intervals.fixed_seconds or (None, None)),
            engine.seconds_per_sample,
            *(engine.intervals.seconds_per_sample or (None, None)),
            engine.half_batch,
            engine.call_seconds,
            engine.worst,
        ]
        for engine in overhead.engines
    ]
    return comma_separated(header, lines)
