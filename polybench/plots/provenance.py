"""Where the numbers of a figure are from: workload, machine, versions, date and ID, for its caption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from polybench.core import units
from polybench.core.document.circumstances import Host, Tool
from polybench.core.document.history import HistoryDocument, Series
from polybench.core.document.limit import LimitDocument
from polybench.core.document.overhead import OverheadDocument
from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import SweepDocument
from polybench.export.heading import heading_of

if TYPE_CHECKING:
    from polybench.plots import Drawable


def provenance(document: Drawable) -> str:
    """One paragraph of plain text."""
    if isinstance(document, HistoryDocument):
        return ". ".join(dict.fromkeys(_of_series(series) for series in document.series)) + "."
    if isinstance(document, OverheadDocument):
        with_threads = f"{document.model}, {units.plural(document.threads, 'thread')}"
        made = ", ".join(filter(None, (_made(document.created, document.polybench), document.id)))
        return f"{with_threads}. {_machine(document.host)}. {made}."
    if isinstance(document, SweepDocument | LimitDocument):
        return f"{document.model}. {_machine(document.host)}. {_made(document.created, document.polybench)}."
    rows = document.results if isinstance(document, StudyDocument) else document.engines
    samples = [row.samples for row in rows if row.samples]
    workload, extent, machine = heading_of(document.settings, document.host, samples)
    versions = _versions(row.versions for row in rows)
    made = f"{_made(document.created, document.polybench)}, {document.id}"
    return ". ".join(filter(None, (workload, extent, machine, versions, made))) + "."


def _of_series(series: Series) -> str:
    threads = units.plural(series.threads, "thread")
    return f"{series.model} on {series.dataset}, {series.precision}, {threads}, {series.cpu}"


def _machine(host: Host) -> str:
    return f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}"


def _made(created: str, tool: Tool) -> str:
    return f"{created.partition('T')[0]}, polybench {tool.version}"


def _versions(of_rows: Iterable[Mapping[str, Any]]) -> str:
    """Names and versions of what ran, each once; what else is told of a build is no part of it."""
    plain = {
        name: version
        for versions in of_rows
        for name, version in versions.items()
        if isinstance(version, str) and name != "build"
    }
    return ", ".join(f"{name} {version}" for name, version in plain.items())
