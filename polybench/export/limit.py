"""The measured roofs of a machine as text."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.core import units
from polybench.core.document.limit import LimitDocument, MeasuredRoof
from polybench.core.document.study import json_of
from polybench.export.one_line import one_line
from polybench.export.records import below, comma_separated, laid_out

_FIELDS = ("device", "precision", "threads", "kind", "value", "unit", "engine", "shape", "change", "measured")


def render(limit: LimitDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS."""
    if format == "json":
        return json_of(limit).decode()
    if format == "csv":
        header = [*_FIELDS, "low", "high"]
        lines = [[getattr(roof, name) for name in _FIELDS] for roof in limit.roofs]
        intervals = [roof.interval95 or (None, None) for roof in limit.roofs]
        return comma_separated(header, [[*one, *two] for one, two in zip(lines, intervals, strict=True)])
    title = f"{limit.host.cpu}, {units.plural(limit.threads, 'thread')}, heap {limit.heap}"
    header = ["roof", "device", "precision", "engine", "shape", "reached"]
    markdown = format == "markdown"
    table = laid_out(header, list(map(_line, limit.roofs)), left=5, markdown=markdown)
    notes = below((*_sentences(limit), *limit.warnings), markdown=markdown)
    return "\n\n".join([title, *([table] if limit.roofs else []), notes]) + "\n"


def _line(roof: MeasuredRoof) -> list[str]:
    interval = roof.interval95 and (roof.interval95[0] / 1e9, roof.interval95[1] / 1e9)
    reached = f"{units.with_interval(roof.value / 1e9, interval)} G{roof.unit}"
    return [roof.kind, roof.device, roof.precision or "fp64", roof.engine, roof.shape, reached]


def _sentences(limit: LimitDocument) -> Iterator[str]:
    if limit.roofs:
        yield "gemm: the fastest product of square matrices, of all engines and sizes, forward or a gradient"
        if any(roof.kind == "convolution" for roof in limit.roofs):
            yield (
                f"convolution: the fastest of those of {limit.model}, counted as if computed directly, so"
                " Winograd's algorithm may be above the product"
            )
        yield (
            "triad: a = b + s c over arrays that no cache holds; each of the three counts once: that a line"
            " is fetched before it is written is not counted"
        )
        yield "the median over rounds, and the least and the most of them (95% at least, within one run)"
    dates = dict.fromkeys(roof.measured.partition("T")[0] for roof in limit.roofs)
    if dates:
        yield f"measured on {', '.join(dates)} with {_versions(limit)}; to measure again: --recheck"
    for engine in limit.engines:
        if engine.status != "ok":
            remedy = f" ({one_line(engine.remedy)})" if engine.remedy else ""
            yield f"{engine.cell}: {engine.status}: {one_line(engine.reason or '')}{remedy}"


def _versions(limit: LimitDocument) -> str:
    known = {name: version for engine in limit.engines for name, version in engine.versions.items()}
    known |= {"NumPy": limit.numpy} if limit.numpy else {}
    return ", ".join(f"{name} {version}" for name, version in known.items()) or "NumPy"
