"""Saved studies from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from polybench.analysis.diff import TOLERANCE
from polybench.analysis.diff import diff as diff_studies
from polybench.analysis.explanation import explain as explain_study
from polybench.analysis.history import build_history as over_time
from polybench.analysis.merge import merge as merge_studies
from polybench.analysis.prices import check_prices
from polybench.analysis.related_documents import load_saved_documents
from polybench.api.results import (
    DiffResult,
    ExplanationResult,
    HistoryResult,
    MergeResult,
    OverheadResult,
    StudyResult,
    SweepResult,
    load_sections,
)
from polybench.errors import BadInput, lookup_or_suggest
from polybench.html_report import render_report
from polybench.storage.filters import FILTER_NAMES, filters_from_text
from polybench.storage.store import Store, results_folder


def load(study: str, *, prices: Mapping[str, float] | None = None, results: Path | None = None) -> StudyResult:
    """Load a saved study by its ID, a unique prefix, the path of its log, or `last`.

    `prices` are those of `compare`; costs are the saved times multiplied by them. `results` is the folder of saved
    studies, here and in all other functions.
    """
    store = Store(results_folder(results))
    document = store.load(study, prices=prices)
    check_prices(prices or (), [document])
    return StudyResult(document, store.log_of(study))


def load_sweep(
    sweep: str = "sweep-last", *, prices: Mapping[str, float] | None = None, results: Path | None = None
) -> SweepResult:
    """Load a saved sweep by its ID, a unique prefix, the path of its log, or `sweep-last`.

    `prices` are those of `load`.
    """
    store = Store(results_folder(results))
    document = store.load_other(sweep, "sweep", prices=prices)
    check_prices(prices or (), [document])
    return SweepResult(document, store.log_of(sweep, "sweep"))


def load_overhead(overhead: str = "overhead-last", *, results: Path | None = None) -> OverheadResult:
    """Load a saved overhead by its ID, a unique prefix, the path of its log, or `overhead-last`."""
    store = Store(results_folder(results))
    return OverheadResult(store.load_other(overhead, "overhead"), store.log_of(overhead, "overhead"))


def diff(
    a: str | StudyResult,
    b: str | StudyResult,
    *,
    tolerance: float = TOLERANCE,
    same_machine: bool = False,
    results: Path | None = None,
) -> DiffResult:
    """Compare two studies: is each configuration faster or slower in B than in A?

    Args:
        a: a result, or an argument of `load`.
        b: the same.
        tolerance: smallest difference of step times, as a fraction, that verdicts name.
        same_machine: both host names belong to the same machine, as with containers.
    """
    _check(tolerance)
    one, two = (_loaded(side, results) for side in (a, b))
    saved = Store(results_folder(results)).summaries()
    return DiffResult(diff_studies(one.document, two.document, tolerance, same_machine=same_machine, saved=saved))


class StudyQuery(TypedDict, total=False):
    """Filters of studies and configurations: the options of `polybench list`, with `*` and `?` in names.

    `torch` matches every variant, `torch+compile` only this one; a date is "2026-11-01" (UTC).
    """

    engine: str
    model: str
    device: str
    host: str
    since: str
    until: str
    title: str


def history(
    *,
    versions: Mapping[str, str] | None = None,
    tags: Sequence[str] = (),
    tolerance: float = TOLERANCE,
    results: Path | None = None,
    **query: Unpack[StudyQuery],
) -> HistoryResult:
    """Return the step times of each configuration over time, with change points.

    Args:
        versions: `{"torch": "2.13"}` matches 2.13.0 and 2.13.1.
        tags: a study must have all of them.
        tolerance: smallest difference of step times, as a fraction, that verdicts and change points name.
    """
    _check(tolerance)
    for name in query:
        lookup_or_suggest(name, dict.fromkeys(FILTER_NAMES), "filter")
    texts: dict[str, str | None] = {**query}  # type: ignore[dict-item]  # by their types, all are text
    numbers = [f"{name}={number}" for name, number in (versions or {}).items()]
    filters = filters_from_text(texts, numbers, tags, prefix="")
    store = Store(results_folder(results))
    return HistoryResult(over_time(store.studies(filters), filters, tolerance))


def explain(study: str, *, baseline: str | None = None, results: Path | None = None) -> ExplanationResult:
    """Explain the differences between the rows of a study, from all related saved documents.

    Args:
        study: its ID, a unique prefix, or `last`.
        baseline: the configuration to compare with; the study's baseline by default.
    """
    store = Store(results_folder(results))
    document = store.load(study)
    return ExplanationResult(explain_study(document, load_saved_documents(document, store), baseline))


def merge(
    *studies: str | StudyResult,
    prices: Mapping[str, float] | None = None,
    baseline: str | None = None,
    results: Path | None = None,
) -> MergeResult:
    """Combine studies of one workload on several machines into one table.

    Args:
        studies: at least two results, or arguments of `load`.
        prices: dollars per hour by device, "cpu", or by machine and device, "here:cpu"; "cpu-16" applies to a
            machine with 16 threads.
        baseline: the row to compare with, "HOST:CONFIGURATION"; that of the first study by default.
    """
    documents = [_loaded(study, results).document for study in studies]
    saved = Store(results_folder(results)).summaries()
    return MergeResult(merge_studies(documents, prices or {}, baseline, saved=saved))


def report(
    *parts: str | StudyResult | SweepResult, prices: Mapping[str, float] | None = None, results: Path | None = None
) -> str:
    """Return the page of `polybench report`, one self-contained HTML file; requires the extra `report`.

    Args:
        parts: at least one result, or argument of `load` or `load_sweep`.
        prices: those of `load`.
        results: the folder of saved studies, from which layers and an explanation are added.
    """
    if not parts:
        raise BadInput('a report requires at least one study, for example report("last")')
    store = Store(results_folder(results))
    return render_report(load_sections(parts, store, prices))


def _loaded(study: str | StudyResult, results: Path | None) -> StudyResult:
    return load(study, results=results) if isinstance(study, str) else study


def _check(tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise BadInput(f"tolerance {tolerance}: expected a fraction between 0 and 1, such as 0.05 for 5%")
