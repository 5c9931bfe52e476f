"""Footnotes about data parallel training: which ranks the times, threads and memory describe."""

from __future__ import annotations

from collections.abc import Collection

from polybench.schema import units
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument


def data_parallel_notes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """Describe how each configuration divides its batch, and what the shown columns mean.

    Args:
        study: the study that the table shows.
        columns: names of the shown columns.
    """
    grouped: dict[str, list[str]] = {}
    for result in study.results:
        if result.is_ranked and result.workload.replicas > 1:
            text = _describe(result, study.settings.input_kind)
            grouped.setdefault(text, []).append(result.configuration)
    notes = [f"{', '.join(configurations)}: {text}" for text, configurations in grouped.items()]
    if not notes:
        return []
    if "parallel_efficiency" in columns and any(result.scaling for result in study.results):
        on_gpus = any(result.scaling and result.scaling.devices > 1 for result in study.results)
        baseline = "one GPU, divided by the number of GPUs" if on_gpus else "one replica on the same threads"
        notes.append(f"parallel efficiency: {study.settings.input_kind}s/s relative to {baseline}")
    if "allreduce_share" in columns:
        sources = dict.fromkeys(one.communication.source for one in study.results if one.communication)
        notes += [f"all-reduce share: {source}" for source in sources]
    return notes


def _describe(result: Result, input_kind: str) -> str:
    replicas, workload = result.workload.replicas, result.workload
    shard = f"{units.plural(workload.batch_size // replicas, input_kind)} per batch each"
    if result.world_size == 1:
        threads = units.plural(workload.threads, "thread")
        return f"{replicas} devices in one process share {threads}, with {shard}"
    threads = units.plural(max(1, workload.threads // replicas), "thread")
    return (
        f"{replicas} processes with {threads} and {shard}; times, page faults and context switches are those"
        " of rank 0, memory and allocations are totals"
    )
