"""The lines below a table about replicas: whose times, threads and memory these are."""

from __future__ import annotations

from collections.abc import Collection

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument


def replica_notes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """One line for each kind of cells with several replicas, and what the shown columns mean."""
    kinds: dict[str, list[str]] = {}
    for result in study.results:
        if result.ranked and result.workload.replicas > 1:
            kinds.setdefault(_kind(result, study.settings.unit), []).append(result.cell)
    notes = [f"{', '.join(cells)}: {text}" for text, cells in kinds.items()]
    if not notes:
        return []
    if "efficiency" in columns and any(result.scaling for result in study.results):
        on_gpus = any(one.scaling and one.scaling.devices > 1 for one in study.results)
        over = "over their number of GPUs" if on_gpus else "which has the same threads"
        notes.append(f"scaling efficiency: {study.settings.unit}s/s to those of one replica, {over}")
    if "communication" in columns:
        sources = dict.fromkeys(one.communication.source for one in study.results if one.communication)
        notes += [f"communication: {source}" for source in sources]
    return notes


def _kind(result: Result, unit: str) -> str:
    replicas, work = result.workload.replicas, result.workload
    each = f"{units.plural(work.batch_size // replicas, unit)} of every batch each"
    if result.ranks == 1:
        return f"{replicas} devices of one process, {each}; they share {units.plural(work.threads, 'thread')}"
    threads = units.plural(max(1, work.threads // replicas), "thread")
    return (
        f"{replicas} processes, {threads} and {each}; times, faults and switches are the first one's,"
        " memory and allocations of all"
    )
