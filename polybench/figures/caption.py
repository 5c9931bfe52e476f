"""Captions of figures: workload, machine, versions, date and ID of a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from polybench.render.header import header_for
from polybench.schema import units
from polybench.schema.history import HistoryDocument, Series
from polybench.schema.metadata import Host, ToolVersion
from polybench.schema.overhead import OverheadDocument
from polybench.schema.peak import PeakDocument
from polybench.schema.study import StudyDocument
from polybench.schema.sweep import SweepDocument

if TYPE_CHECKING:
    from polybench.figures import Drawable


def caption_for(document: Drawable) -> str:
    """Write a paragraph of plain text about the origin of a document."""
    if isinstance(document, HistoryDocument):
        return ". ".join(dict.fromkeys(_describe_series(series) for series in document.series)) + "."
    if isinstance(document, OverheadDocument):
        workload = f"{document.model}, {units.plural(document.threads, 'thread')}"
        origin = ", ".join(filter(None, (_origin(document.created, document.polybench), document.id)))
        return f"{workload}. {_machine(document.host)}. {origin}."
    if isinstance(document, SweepDocument | PeakDocument):
        return f"{document.model}. {_machine(document.host)}. {_origin(document.created, document.polybench)}."
    results = document.results if isinstance(document, StudyDocument) else document.configurations
    step_times = [result.step_times for result in results if result.step_times]
    workload, extent, machine = header_for(document.settings, document.host, step_times)
    versions = _versions(result.versions for result in results)
    origin = f"{_origin(document.created, document.polybench)}, {document.id}"
    return ". ".join(filter(None, (workload, extent, machine, versions, origin))) + "."


def _describe_series(series: Series) -> str:
    threads = units.plural(series.threads, "thread")
    return f"{series.model} on {series.dataset}, {series.precision}, {threads}, {series.cpu}"


def _machine(host: Host) -> str:
    return f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}"


def _origin(created: str, tool: ToolVersion) -> str:
    return f"{created.partition('T')[0]}, polybench {tool.version}"


def _versions(of_results: Iterable[Mapping[str, Any]]) -> str:
    """List each package and its version once, without build information."""
    packages = {
        name: version
        for versions in of_results
        for name, version in versions.items()
        if isinstance(version, str) and name != "build"
    }
    return ", ".join(f"{name} {version}" for name, version in packages.items())
