"""What a fleet came to, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polybench.core.document.merge import MergeDocument
from polybench.core.document.study import StudyDocument
from polybench.core.machines import split_baseline
from polybench.core.spec import Study
from polybench.fleet.driver import FleetMeasured
from polybench.report.merge import machine_name, merge


def table(measured: FleetMeasured, study: Study, warn: Callable[[str], object]) -> MergeDocument:
    """The rows of all machines, and of which nothing came.

    Args:
        measured: what came.
        study: what was asked for; its baseline is the row that others are compared with.
        warn: told where that was not measured, and another row takes its place.
    """
    documents = [one.document for one in measured.machines if one.document is not None]
    absent = {
        one.label: one.failure or "nothing came of it" for one in measured.machines if one.document is None
    }
    return merge(documents, {}, _baseline(study, documents, warn), absent)


def _baseline(study: Study, documents: Sequence[StudyDocument], warn: Callable[[str], object]) -> str | None:
    """None for another one where it was not measured, as in a plain study."""
    wanted = study.baseline
    if split_baseline(wanted)[0] is None:
        return None
    ranked = {f"{machine_name(one)}:{row.cell}" for one in documents for row in one.results if row.ranked}
    if wanted in ranked:
        return wanted
    warn(f"the baseline {wanted} was not measured; another row takes its place")
    return None
