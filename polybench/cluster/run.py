"""Running and resuming a study on several machines."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence

import msgspec

from polybench.analysis.merge import machine_name, merge
from polybench.cluster.driver import ClusterResult, Driver
from polybench.cluster.executor import make_executor, supports_upload
from polybench.planning.plan import check_remote
from polybench.results.document import study_toml
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, ClusterRun, MachineStudy, polybench_changes
from polybench.runner.prepare import new_header, new_id
from polybench.runner.progress import Progress
from polybench.schema.analyses import MergeDocument
from polybench.schema.options import Study, check_machine_groups, split_baseline
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store


def run_on_cluster(cluster_run: ClusterRun, progress: Progress, *, store: Store | None) -> ClusterResult:
    """Measure a study on a machine of every group.

    Ctrl-C ends the studies on all machines; the finished parts are returned and marked as interrupted.

    Args:
        cluster_run: the study and its machines.
        progress: receives the progress of all machines.
        store: saves each study and its checkpoint as soon as they arrive.

    Raises:
        BadInput: invalid input, detected before measuring.
        RequiredEngineMissing: an engine is missing, with `strict`.
        PolybenchError: there is only one group, and it has no result.
    """
    check_machine_groups(cluster_run.study, cluster_run.groups)
    for group in cluster_run.groups:
        check_remote(group.study(cluster_run.study))  # rejects what no machine could run
    if store is not None:
        store.ensure_writable()
    ids = _new_ids(len(cluster_run.groups))
    checkpoint = ClusterCheckpoint(
        header=new_header(cluster_run.argv, cluster_run.study_file, anonymous=cluster_run.anonymous),
        study=study_toml(cluster_run.study),
        run=cluster_run,
        machine_studies=[
            MachineStudy(label=group.label, study_id=id) for group, id in zip(cluster_run.groups, ids, strict=True)
        ],
    )
    return _run(checkpoint, progress, store, resumed=False)


def resume_on_cluster(
    id: str,
    progress: Progress,
    *,
    store: Store,
    target: str | None = None,
    upload: bool = False,
    strict: bool = False,
    anonymous: bool = False,
) -> ClusterResult:
    """Resume a study that was stopped, killed or disconnected, using every process run that has arrived.

    Args:
        id: ID of the cluster run.
        progress: as in `run_on_cluster`.
        store: results folder of the run.
        target: address of the machines, if it has changed.
        upload: send the machines this polybench, even if the run was started without it.
        strict: reject missing engines and devices, even if the run was started without it.
        anonymous: remove host names, user names and paths from the documents, even if the run was started
            without it.

    Raises:
        BadInput: the run is unknown, finished or still running, or the machine, versions or data have
            changed.
        RequiredEngineMissing: an engine is missing, with `strict`.
    """
    store.ensure_writable()
    checkpoint = CheckpointStore(store.folder).read(id, ClusterCheckpoint)
    cluster_run = checkpoint.run
    checkpoint.run = msgspec.structs.replace(
        cluster_run,
        on=target or cluster_run.on,
        upload=upload or (cluster_run.upload and supports_upload(target or cluster_run.on)),
        strict=cluster_run.strict or strict,
        anonymous=cluster_run.anonymous or anonymous,
    )
    return _run(checkpoint, progress, store, resumed=True)


def _run(checkpoint: ClusterCheckpoint, progress: Progress, store: Store | None, *, resumed: bool) -> ClusterResult:
    with contextlib.ExitStack() as stack:
        if store is not None:
            checkpoints = CheckpointStore(store.folder)
            stack.enter_context(checkpoints.lock(checkpoint.header.id))
            if resumed:  # another process may have finished it since
                cluster_run, checkpoint = checkpoint.run, checkpoints.read(checkpoint.header.id, ClusterCheckpoint)
                checkpoints.reject_changed(checkpoint, polybench_changes(checkpoint.header.tool_version))
                checkpoint.run = cluster_run
        executor = stack.enter_context(
            contextlib.closing(make_executor(checkpoint.run.on, upload=checkpoint.run.upload))
        )
        driver = Driver(checkpoint, executor, progress, store)
        if resumed:
            driver.restore()
        return driver.run()


def _new_ids(count: int) -> list[str]:
    """Return different IDs for studies that start at the same time."""
    ids: dict[str, None] = {}
    while len(ids) < count:
        ids[new_id() if count == 1 else f"{new_id()}{secrets.token_hex(2)}"] = None
    return list(ids)


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
