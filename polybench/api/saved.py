"""Saved studies from Python."""

from __future__ import annotations

from pathlib import Path

from polybench.api.results import DiffResult
from polybench.api.study_results import StudyResult
from polybench.core.errors import BadInput
from polybench.report.diff import TOLERANCE
from polybench.report.diff import diff as diff_studies
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
    if not 0 < tolerance < 1:
        raise BadInput(f"tolerance {tolerance} is no fraction between 0 and 1; 0.05 is 5%")
    one, two = (load(side, results=results) if isinstance(side, str) else side for side in (a, b))
    return DiffResult(diff_studies(one.document, two.document, tolerance, same_machine=same_machine))
