"""Table of the results of a study on several machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polybench.analysis.merge import machine_name, merge
from polybench.cluster.driver import ClusterResult
from polybench.schema.merge import MergeDocument
from polybench.schema.options import Study, split_baseline
from polybench.schema.study import StudyDocument


def cluster_table(result: ClusterResult, study: Study, warn: Callable[[str], object]) -> MergeDocument:
    """Merge the rows of all machines, and list machines without results.

    Args:
        result: results of all machines.
        study: the study; speeds are relative to its baseline.
        warn: receives a warning if the baseline was not measured and another row replaces it.
    """
    documents = [one.document for one in result.machines if one.document is not None]
    failed_machines = {one.label: one.failure or "no document" for one in result.machines if one.document is None}
    return merge(documents, {}, _baseline(study, documents, warn), failed_machines)


def _baseline(study: Study, documents: Sequence[StudyDocument], warn: Callable[[str], object]) -> str | None:
    """Return the baseline; None selects another one if it was not measured, as in a study on one machine."""
    baseline = study.baseline
    if split_baseline(baseline)[0] is None:
        return None
    ranked = {f"{machine_name(one)}:{row.configuration}" for one in documents for row in one.results if row.is_ranked}
    if baseline in ranked:
        return baseline
    warn(f"the baseline {baseline} was not measured; another row replaces it")
    return None
