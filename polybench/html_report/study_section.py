"""Section of a report about a study: converts documents to texts for the template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from polybench.html_report.environment_table import environment_rows, format_command
from polybench.html_report.figures import FigureView, figure_views
from polybench.html_report.overview import title_for
from polybench.html_report.parity_section import ParityView, build_parity_views
from polybench.html_report.results_table import ResultsTable, build_results_table
from polybench.render import layers, published_results
from polybench.render.explanation import breakdown_table
from polybench.render.footnotes import footnotes
from polybench.render.study import header_lines
from polybench.render.summary import summary_sentences
from polybench.render.table import Table
from polybench.schema.analyses import ExplainedComparison, ExplanationDocument
from polybench.schema.measurements import LayersDocument
from polybench.schema.metadata import Settings
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.figures import Drawable, Kind


class StudySection(NamedTuple):
    """A study with its related documents.

    Attributes:
        study: the document.
        scripts: configurations and their plain scripts.
        layers: None if layer times were not measured.
        explanation: None if there is nothing to compare.
    """

    study: StudyDocument
    scripts: Sequence[tuple[str, str]] = ()
    layers: LayersDocument | None = None
    explanation: ExplanationDocument | None = None


class ComparisonView(NamedTuple):
    """Explanation of a comparison: its statements, and a breakdown as a table."""

    comparison: ExplainedComparison
    breakdown: Table | None


class StudyView(NamedTuple):
    """All texts of a section; element IDs in the page start with `id`."""

    id: str
    study: StudyDocument
    title: str
    headline: str
    header_lines: list[str]
    summary: list[str]
    table: ResultsTable
    figures: list[FigureView]
    notes: list[str]
    parity_views: list[ParityView]
    comparisons: list[ComparisonView]
    explanation: ExplanationDocument | None
    layers: Table | None
    layer_figures: list[FigureView]
    scripts: Sequence[tuple[str, str]]
    published: Table | None
    command: str
    versions: list[tuple[str, list[tuple[str, str]]]]
    environment: list[tuple[str, str]]
    template: str = "study.html.j2"

    @property
    def all_figures(self) -> list[FigureView]:
        """All figures of the section."""
        return [*self.figures, *self.layer_figures]


def build_view(section: StudySection, number: int) -> StudyView:
    """Build the texts of the section with this number."""
    study, explanation, section_id = section.study, section.explanation, f"s{number}"
    first = headline(study)
    table = build_results_table(study)
    documents: dict[Kind, Drawable] = {"study": study}
    if section.layers:
        documents["layers"] = section.layers
    figures = list(figure_views(documents, section_id))
    return StudyView(
        id=section_id,
        study=study,
        title=title_for(study),
        headline=first,
        header_lines=header_lines(study),
        summary=[sentence for sentence in summary_sentences(study) if sentence != first],
        table=table,
        figures=[figure for figure in figures if figure.kind == "study"],
        notes=footnotes(study, [column.name for column in table.columns]),
        parity_views=build_parity_views(study),
        comparisons=[_comparison(comparison) for comparison in explanation.comparisons] if explanation else [],
        explanation=explanation,
        layers=layers.table(section.layers) if section.layers else None,
        layer_figures=[figure for figure in figures if figure.kind == "layers"],
        scripts=section.scripts,
        published=published_results.table(study.published, published_results.from_study(study.results)),
        command=format_command(study.argv),
        versions=[
            (
                result.configuration,
                [(name, _format_version(value)) for name, value in result.versions.items()],
            )
            for result in study.results
            if result.versions
        ],
        environment=[*environment_rows(study.host, study.polybench), *_hashes(study.settings)],
    )


def headline(study: StudyDocument) -> str:
    """Choose the summary sentence about the fastest configuration other than the baseline.

    Without any comparison, list the measured configurations.
    """
    others = [
        result
        for result in study.results
        if result.is_ranked and result.vs_baseline and result.vs_baseline.baseline != result.configuration
    ]
    fastest = max(others, key=lambda result: result.vs_baseline.speedup if result.vs_baseline else 0.0, default=None)
    if fastest is not None and fastest.vs_baseline is not None:
        pair = {fastest.configuration, fastest.vs_baseline.baseline}
        reduced = msgspec.structs.replace(study, results=[one for one in study.results if one.configuration in pair])
        if sentences := summary_sentences(reduced):
            return sentences[0]
    measured = [result.configuration for result in study.results if result.is_measured]
    return f"Measured: {', '.join(measured)}." if measured else "Nothing was measured."


def _comparison(comparison: ExplainedComparison) -> ComparisonView:
    breakdown = comparison.breakdown("layers") or comparison.breakdown("batch size")
    return ComparisonView(comparison, breakdown_table(comparison, breakdown) if breakdown else None)


def _format_version(value: Any) -> str:
    """Format a version, or a table of names and values, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_format_version(item)}" for name, item in value.items())
    return str(value)


def _hashes(settings: Settings) -> list[tuple[str, str]]:
    return [
        (f"{settings.input_kind}s, SHA-256", settings.data_sha256),
        ("weights, SHA-256", settings.weights_sha256),
        ("batches, SHA-256", settings.batches_sha256),
    ]
