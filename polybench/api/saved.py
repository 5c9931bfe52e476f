"""Saved studies from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

from polybench.api.parts import chapter_of, part_of
from polybench.api.results import (
    DiffResult,
    ExplanationResult,
    HistoryResult,
    MergeResult,
    OverheadResult,
    SweepResult,
)
from polybench.api.study_results import StudyResult
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.page import Part, render
from polybench.report.acknowledged import acknowledged
from polybench.report.belongings import saved_beside
from polybench.report.diff import TOLERANCE
from polybench.report.diff import diff as diff_studies
from polybench.report.explanation import explain as explain_study
from polybench.report.filter_texts import NAMES, filters_of
from polybench.report.history import history as over_time
from polybench.report.merge import merge as merge_studies
from polybench.report.saved_studies import Store, results_folder


def load(study: str, *, results: Path | None = None) -> StudyResult:
    """A saved study.

    Args:
        study: its ID, a unique prefix of one, the path of its document, or `last`.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such study, or it cannot be read.
    """
    return StudyResult(Store(results_folder(results)).load(study))


def load_sweep(sweep: str = "sweep-last", *, results: Path | None = None) -> SweepResult:
    """A saved sweep.

    Args:
        sweep: its ID, a unique prefix of one, the path of its document, or `sweep-last`.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such sweep, or it cannot be read.
    """
    return SweepResult(Store(results_folder(results)).load_sweep(sweep))


def load_overhead(overhead: str = "overhead-last", *, results: Path | None = None) -> OverheadResult:
    """A saved overhead.

    Args:
        overhead: its ID, a unique prefix of one, the path of its document, or `overhead-last`.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such overhead, or it cannot be read.
    """
    return OverheadResult(Store(results_folder(results)).load_overhead(overhead))


def diff(
    a: str | StudyResult,
    b: str | StudyResult,
    *,
    tolerance: float = TOLERANCE,
    same_machine: bool = False,
    results: Path | None = None,
) -> DiffResult:
    """Say of each cell of two studies whether it is faster or slower in B than in A.

    Args:
        a: a result, or what `load` takes.
        b: the same.
        tolerance: the fraction by which a step may change without a difference.
        same_machine: whether the two hosts are one machine by two names, as containers are.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such study, or the tolerance is no fraction.
    """
    _check(tolerance)
    one, two = (_loaded(side, results) for side in (a, b))
    return DiffResult(diff_studies(one.document, two.document, tolerance, same_machine=same_machine))


class Wanted(TypedDict, total=False):
    """Which studies and cells: the options of `polybench list`. Names may have `*` and `?`.

    `torch` is any of its variants, `torch+compile` this one; a date is "2026-11-01" (UTC).
    """

    engine: str
    model: str
    device: str
    host: str
    since: str
    until: str


def history(
    *,
    versions: Mapping[str, str] | None = None,
    tolerance: float = TOLERANCE,
    results: Path | None = None,
    **wanted: Unpack[Wanted],
) -> HistoryResult:
    """Each cell of saved studies over time, with the steps of its step time.

    Args:
        versions: `{"torch": "2.13"}` is 2.13.0 and 2.13.1, too.
        tolerance: the fraction up to which a step is none.
        results: the folder of saved studies.
        wanted: engine, model, device, host, since, until.

    Raises:
        BadInput: something is no date, or the tolerance is no fraction.
    """
    _check(tolerance)
    for name in wanted:
        pick(name, dict.fromkeys(NAMES), "filter")
    texts: dict[str, str | None] = {**wanted}  # type: ignore[dict-item]  # by their types, all are text
    numbers = [f"{name}={number}" for name, number in (versions or {}).items()]
    filters = filters_of(texts, numbers, before="")
    store = Store(results_folder(results))
    return HistoryResult(over_time(store.studies(filters), acknowledged(store.folder), filters, tolerance))


def explain(study: str, *, against: str | None = None, results: Path | None = None) -> ExplanationResult:
    """Say why one row of a saved study is faster, from all saved documents that belong to it.

    Args:
        study: its ID, a unique prefix of one, or `last`.
        against: the cell to compare with, by default the study's baseline.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such study, or nothing in it that may be compared.
    """
    store = Store(results_folder(results))
    document = store.load(study)
    return ExplanationResult(explain_study(document, saved_beside(document, store), against))


def merge(
    *studies: str | StudyResult,
    prices: Mapping[str, float] | None = None,
    baseline: str | None = None,
    results: Path | None = None,
) -> MergeResult:
    """Put studies of one workload on several machines into one table.

    Args:
        studies: at least two results, or what `load` takes.
        prices: dollars an hour by device, "cpu", or by machine and device, "here:cpu"; "cpu-16" is of a
            machine with so many threads.
        baseline: the row that others are compared with, "HOST:CELL"; by default that of the first study.
        results: the folder of saved studies.

    Raises:
        BadInput: there is no such study, or they are of different workloads.
    """
    documents = [_loaded(study, results).document for study in studies]
    return MergeResult(merge_studies(documents, prices or {}, baseline))


def html_report(*parts: str | StudyResult | SweepResult, results: Path | None = None) -> str:
    """The page of `polybench report`: one HTML file that needs nothing else; needs the extra `report`.

    Args:
        parts: at least one result, what `load` or `load_sweep` takes.
        results: the folder of saved studies, in which layers and an explanation are looked for.

    Raises:
        BadInput: there is no such study or sweep, or a package is not installed.
    """
    if not parts:
        raise BadInput('a report is of one study at least: html_report("last")')
    store = Store(results_folder(results))
    return render([_part(part, store) for part in parts])


def _part(part: str | StudyResult | SweepResult, store: Store) -> Part:
    if isinstance(part, SweepResult):
        return part.document
    return part_of(part, store) if isinstance(part, str) else chapter_of(part.document, store)


def _loaded(study: str | StudyResult, results: Path | None) -> StudyResult:
    return load(study, results=results) if isinstance(study, str) else study


def _check(tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise BadInput(f"tolerance {tolerance} is no fraction between 0 and 1; 0.05 is 5%")
