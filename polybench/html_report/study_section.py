"""Section of a report about a study: converts documents to texts for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from polybench.html_report.page import View, environment_rows, figure_views, format_command
from polybench.render import layers, published_results
from polybench.render.explanation import explanation_table
from polybench.render.footnotes import failed_parity, footnotes
from polybench.render.methods import methods_text
from polybench.render.study import fastest_rows, header_lines, status_text
from polybench.render.table import name_text
from polybench.render.verdicts import summary_sentences
from polybench.schema import units
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.measurements import LayersDocument
from polybench.schema.metrics import DEFAULT_COLUMNS, GROUPS, METRICS, Metric
from polybench.schema.parity import ParityCheck, PrecisionResult, TensorComparison
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.figures import Drawable, Kind


class StudySection(NamedTuple):
    """A study with its related documents, as far as they were measured."""

    study: StudyDocument
    programs: Sequence[tuple[str, str]] = ()
    """Configurations and their programs."""
    layers: LayersDocument | None = None
    explanation: ExplanationDocument | None = None


def build_view(section: StudySection, number: int) -> View:
    """Build the texts of the section with this number; its element IDs in the page start with `id`."""
    study, explanation, section_id = section.study, section.explanation, f"s{number}"
    settings, first, table = study.settings, headline(study), results_table(study)
    documents: dict[Kind, Drawable] = {"study": study}
    if section.layers:
        documents["layers"] = section.layers
    figures = list(figure_views(documents, section_id))
    return {
        "template": "study.html.j2",
        "id": section_id,
        "study": study,
        "title": study.title
        or f"{units.format_model(settings.model, settings.pass_)} on {settings.data_name}, batch {settings.batch_size}",
        "headline": first,
        "header_lines": [*filter(None, [name_text(None, study.tags)]), *header_lines(study)],
        "summary": [sentence for sentence in summary_sentences(study) if sentence != first],
        "table": table,
        "all_figures": figures,
        "notes": [methods_text(study), *footnotes(study, [one["name"] for one in table["columns"]])],
        "parity_views": parity_views(study),
        "parity_kinds": ("logits",) if settings.pass_ == "forward" else ("loss", "gradient", "weight"),
        "explanation": explanation,
        "explanation_table": explanation_table(explanation) if explanation else None,
        "layers": layers.table(section.layers) if section.layers else None,
        "programs": section.programs,
        "published": published_results.table(study.published, published_results.from_study(study.results)),
        "command": format_command(study.argv),
        "versions": [
            (result.configuration, [(name, _format_version(value)) for name, value in result.versions.items()])
            for result in study.results
            if result.versions
        ],
        "environment": [
            *environment_rows(study.host, study.polybench),
            (f"{settings.input_kind}s, SHA-256", settings.data_sha256),
            ("weights, SHA-256", settings.weights_sha256),
            ("batches, SHA-256", settings.batches_sha256),
        ],
    }


def headline(study: StudyDocument) -> str:
    """Choose the summary sentence about the fastest configuration other than the baseline.

    Without any comparison, list the measured configurations.
    """
    others = [
        result
        for result in study.results
        if result.is_for_production and result.vs_baseline and result.vs_baseline.baseline != result.configuration
    ]
    fastest = max(others, key=lambda result: result.vs_baseline.speedup if result.vs_baseline else 0.0, default=None)
    if fastest is not None and fastest.vs_baseline is not None:
        pair = {fastest.configuration, fastest.vs_baseline.baseline}
        reduced = msgspec.structs.replace(study, results=[one for one in study.results if one.configuration in pair])
        if sentences := summary_sentences(reduced):
            return sentences[0]
    measured = [result.configuration for result in study.results if result.is_measured]
    return f"Measured: {', '.join(measured)}." if measured else "Nothing was measured."


def _format_version(value: Any) -> str:
    """Format a version, or a table of names and values, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_format_version(item)}" for name, item in value.items())
    return str(value)


def overview(studies: Sequence[View]) -> View:
    """Build the overview of several studies: a row per configuration, a column per study with its step times.

    Configurations appear in the order of their first study.
    """
    step_times = [
        {
            result.configuration: METRICS["step_time"].text(result)
            for result in view["study"].results
            if result.is_ranked
        }
        for view in studies
    ]
    configurations = dict.fromkeys(configuration for texts in step_times for configuration in texts)
    return {
        "studies": studies,
        "rows": [
            (configuration, [texts.get(configuration, "") for texts in step_times]) for configuration in configurations
        ],
    }


def parity_views(study: StudyDocument) -> list[View]:
    """Build a view for each configuration that was checked, or measured without a check."""
    return [
        _parity_view(result.configuration, result.parity)
        for result in study.results
        if result.is_measured or result.parity.status != "skipped"
    ]


_MAX_TENSORS = 12
"""Comparisons shown per configuration; the saved document contains all of them."""


def _parity_view(configuration: str, parity: ParityCheck) -> View:
    """Errors are those of loss, gradients and weights, or of logits, in float64, then at the timed precision."""
    largest = sorted(parity.tensors, key=_relative_to_tolerance, reverse=True)[:_MAX_TENSORS]
    return {
        "configuration": configuration,
        "status": {"pass": "same", "fail": "differs", "skipped": "not checked"}[parity.status],
        "reason": parity.reason,
        "errors": [*_errors(parity.float64), *_errors(parity.timed)],
        "largest_errors": [(one, _error(one.relative_error, one.tolerance)) for one in largest],
        "comparisons": len(parity.tensors),
        "deviations": [
            f"{one.tensor}: error {units.format_scientific(one.error)}; {one.rule} ({one.source})"
            for one in parity.known_deviations
        ],
    }


def _errors(result: PrecisionResult | None) -> list[View | None]:
    if result is None:
        return [None, None, None]
    if "logits" in result.tolerance:  # a forward pass
        return [_error(result.max_logits_error, result.tolerance["logits"])]
    errors = {"loss": result.max_loss_error, "gradient": result.max_gradient_error, "weight": result.max_weight_error}
    return [
        _error(error, result.tolerance[kind]) if kind in result.tolerance else None for kind, error in errors.items()
    ]


def _error(error: float | None, tolerance: float) -> View:
    text = "not finite" if error is None else units.format_scientific(error)
    return {"error": text, "tolerance": f"{tolerance:g}", "passed": error is not None and error <= tolerance}


def _relative_to_tolerance(comparison: TensorComparison) -> float:
    """Divide the error by its tolerance; infinity for errors that are not finite."""
    error, tolerance = comparison.relative_error, comparison.tolerance
    if error is None:
        return float("inf")
    return error / tolerance if tolerance else error


_MAX_VISIBLE = 7
"""Initially visible columns, as many as fit a wide screen."""
_ROW_KINDS = ("ranked", "unranked", "not-measured")
"""In the order of the rows; sorting in the page keeps it."""


def results_table(study: StudyDocument) -> View:
    """Build the table of all columns with values; rows of a kind are in the order of measurement."""
    measured = [result for result in study.results if result.is_measured]
    metrics = [metric for metric in METRICS.rows().values() if any(metric.value(one) is not None for one in measured)]
    names = {metric.name for metric in metrics}
    shown = [name for name in DEFAULT_COLUMNS if name in names][:_MAX_VISIBLE]
    columns = {metric.name: _column(metric, metric.name in shown, study.settings.input_kind) for metric in metrics}
    fastest = fastest_rows(study)
    label = "fastest" if len(fastest) == 1 else "among the fastest"
    rows = [_row(result, metrics, label if [result.configuration] in fastest else "") for result in study.results]
    return {
        "groups": _groups(columns),
        "columns": list(columns.values()),
        "rows": sorted(rows, key=lambda row: _ROW_KINDS.index(row["kind"])),
    }


def _column(metric: Metric, shown: bool, input_kind: str) -> View:
    description = ", ".join(filter(None, (metric.unit, metric.description)))
    return {
        "name": metric.name,
        "title": units.with_input_kind(metric.title, input_kind),
        "description": units.with_input_kind(description, input_kind),
        "better": metric.better or "",
        "numeric": metric.unit is not None,
        "shown": shown,
    }


def _groups(columns: Mapping[str, View]) -> list[tuple[str, list[View]]]:
    remaining = dict(columns)
    groups = [
        (group.replace("_", " "), [remaining.pop(name) for name in names if name in remaining])
        for group, names in GROUPS.items()
        if group != "all"
    ]
    return [(title, members) for title, members in [*groups, ("other", list(remaining.values()))] if members]


def _row(result: Result, metrics: Sequence[Metric], label: str) -> View:
    """Return a row, with the text and the sort key of each value."""
    kind = "ranked" if result.is_ranked else "unranked" if failed_parity(result) else "not-measured"
    values = [(metric.text(result), "" if (value := metric.value(result)) is None else value) for metric in metrics]
    return {
        "configuration": result.configuration,
        "kind": kind,
        "label": "not ranked" if kind == "unranked" else label,
        "cells": values,
        "status_text": status_text(result) if kind == "not-measured" else "",
    }
