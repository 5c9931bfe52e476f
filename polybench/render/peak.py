"""Measured peaks of a machine."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.render.table import DEFAULTS, Records, Table, TableOptions, number_columns, text_columns, with_reason
from polybench.render.verdicts import busy_sentences
from polybench.schema import units
from polybench.schema.measurements import PeakDocument, PeakMeasurement


def table(document: PeakDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per peak."""
    threads = units.plural(document.threads, "thread")
    return Table(
        summary=busy_sentences(document.configurations),
        title=[f"{document.host.cpu}, {threads}, malloc {document.malloc}"],
        columns=[*text_columns("kind", "device", "precision", "engine", "shape"), *number_columns("peak")],
        rows=list(map(_row, document.peaks)),
        notes=[*_notes(document), *document.warnings],
    )


def records(document: PeakDocument, _: TableOptions) -> Records:
    """List a record per peak."""
    fields = ("device", "precision", "threads", "kind", "value", "unit", "engine", "shape", "drift", "measured_at")
    rows = [[*(getattr(peak, name) for name in fields), *(peak.ci95 or (None, None))] for peak in document.peaks]
    return Records([*fields, "low", "high"], rows)


def _row(peak: PeakMeasurement) -> list[str]:
    interval = peak.ci95 and (peak.ci95[0] / 1e9, peak.ci95[1] / 1e9)
    value = f"{units.format_with_ci(peak.value / 1e9, interval)} G{peak.unit}"
    return [peak.kind.replace("_", " "), peak.device, peak.precision or "fp64", peak.engine, peak.shape, value]


def _notes(document: PeakDocument) -> Iterator[str]:
    if document.peaks:
        yield "gemm: fastest product of square matrices, over all engines, sizes and directions"
        if any(peak.kind == "convolution" for peak in document.peaks):
            yield (
                f"convolution: fastest convolution of {document.model}; FLOPs assume direct computation, so"
                " Winograd's algorithm can exceed the gemm peak"
            )
        yield (
            "memory bandwidth: triad a = b + s c over arrays larger than every cache; counts each array once,"
            " without the fetch of a cache line before a write"
        )
        yield "peak: median over rounds, with their range (at least 95% confidence, within a single process)"
    dates = dict.fromkeys(peak.measured_at.partition("T")[0] for peak in document.peaks)
    if dates:
        versions = {name: text for one in document.configurations for name, text in one.versions.items()}
        versions |= {"NumPy": document.numpy} if document.numpy else {}
        tools = ", ".join(f"{name} {text}" for name, text in versions.items()) or "NumPy"
        yield f"measured on {', '.join(dates)} with {tools}; repeat with --remeasure"
    for one in document.configurations:
        if one.status != "ok":
            yield f"{one.configuration}: {with_reason(one.status, one.reason, one.hint)}"
