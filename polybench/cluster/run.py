"""Running and resuming a study on several machines."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable

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
from polybench.storage.store import Store


def run_on_cluster(cluster_run: ClusterRun, progress: Progress, *, store: Store | None) -> ClusterResult:
    """Measure a study on a machine of every group.

    Ctrl-C ends the studies on all machines; the finished parts are returned and marked as interrupted. The store
    gets each study and its checkpoint as soon as they arrive.

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

    `target` is the address of the machines, if it has changed; the options apply even if the run was started without.

    Raises:
        BadInput: the run is unknown, finished or still running, or the machine, versions or data have changed.
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
    ids: set[str] = set()
    while len(ids) < count:
        ids.add(new_id() if count == 1 else f"{new_id()}{secrets.token_hex(2)}")
    return list(ids)


def cluster_table(result: ClusterResult, study: Study, warn: Callable[[str], object]) -> MergeDocument:
    """Merge the rows of all machines, and list machines without results; speeds are relative to the baseline.

    If the baseline was not measured, another row replaces it with a warning, as in a study on one machine.
    """
    documents = [one.document for one in result.machines if one.document is not None]
    failed_machines = {one.label: one.failure or "no document" for one in result.machines if one.document is None}
    ranked = {f"{machine_name(one)}:{row.configuration}" for one in documents for row in one.results if row.is_ranked}
    baseline = study.baseline if split_baseline(study.baseline)[0] is not None else None
    if baseline is not None and baseline not in ranked:
        warn(f"the baseline {baseline} was not measured; another row replaces it")
        baseline = None
    return merge(documents, {}, baseline, failed_machines)
