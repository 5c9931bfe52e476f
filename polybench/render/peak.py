"""Measured peaks of a machine as text."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.render import one_line
from polybench.render.tables import format_csv, format_notes, format_table
from polybench.schema import units
from polybench.schema.encoding import encode
from polybench.schema.measurements import PeakDocument, PeakMeasurement

_FIELDS = (
    "device",
    "precision",
    "threads",
    "kind",
    "value",
    "unit",
    "engine",
    "shape",
    "drift",
    "measured_at",
)


def render(document: PeakDocument, format: str) -> str:
    """Render in one of render.RECORD_FORMATS, as text that ends with a newline."""
    if format == "json":
        return encode(document).decode()
    if format == "csv":
        rows = [[*(getattr(peak, name) for name in _FIELDS), *(peak.ci95 or (None, None))] for peak in document.peaks]
        return format_csv([*_FIELDS, "low", "high"], rows)
    threads = units.plural(document.threads, "thread")
    title = f"{document.host.cpu}, {threads}, malloc {document.malloc}"
    titles = ["kind", "device", "precision", "engine", "shape", "peak"]
    markdown = format == "markdown"
    table = format_table(titles, list(map(_row, document.peaks)), text_columns=5, markdown=markdown)
    notes = format_notes((*_notes(document), *document.warnings), markdown=markdown)
    return "\n\n".join([title, *([table] if document.peaks else []), notes]) + "\n"


def _row(peak: PeakMeasurement) -> list[str]:
    interval = peak.ci95 and (peak.ci95[0] / 1e9, peak.ci95[1] / 1e9)
    value = f"{units.format_with_ci(peak.value / 1e9, interval)} G{peak.unit}"
    return [
        peak.kind.replace("_", " "),
        peak.device,
        peak.precision or "fp64",
        peak.engine,
        peak.shape,
        value,
    ]


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
        yield f"measured on {', '.join(dates)} with {_versions(document)}; repeat with --remeasure"
    for configuration in document.configurations:
        if configuration.status != "ok":
            hint = f" (hint: {one_line(configuration.hint)})" if configuration.hint else ""
            reason = one_line(configuration.reason or "")
            yield f"{configuration.configuration}: {configuration.status}: {reason}{hint}"


def _versions(document: PeakDocument) -> str:
    versions = {name: text for one in document.configurations for name, text in one.versions.items()}
    versions |= {"NumPy": document.numpy} if document.numpy else {}
    return ", ".join(f"{name} {text}" for name, text in versions.items()) or "NumPy"
