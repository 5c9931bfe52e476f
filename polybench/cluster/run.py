"""Running and resuming a study on several machines."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence

import msgspec

from polybench.analysis.merge import machine_name, merge
from polybench.cluster.driver import ClusterResult, Driver
from polybench.cluster.executor import Executor, make_executor, supports_upload
from polybench.log import Header
from polybench.planning.plan import check_remote
from polybench.results.document import study_toml
from polybench.results.summaries import StudySummary
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, ClusterRun, MachineStudy
from polybench.runner.prepare import new_header, new_id
from polybench.runner.progress import Progress
from polybench.runner.resume import polybench_changes, refuse, refuse_to_anonymize
from polybench.runner.scratch import scratch_folder
from polybench.schema.analyses import MergeDocument
from polybench.schema.options import Study, check_machine_groups, split_baseline
from polybench.storage.store import Store


def run_on_cluster(
    cluster_run: ClusterRun, progress: Progress, *, store: Store | None, header: Header | None = None
) -> ClusterResult:
    """Measure a study on a machine of every group.

    Ctrl-C ends the studies on all machines; the finished parts are returned and marked as interrupted. The store
    gets the log of each study, and its document, as soon as they arrive; without one, nothing is saved.

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
        header=header or new_header(),
        study=study_toml(cluster_run.study),
        run=cluster_run,
        machine_studies=[
            MachineStudy(label=group.label, study_id=id) for group, id in zip(cluster_run.groups, ids, strict=True)
        ],
    )
    with contextlib.ExitStack() as stack:
        kept = store or Store(stack.enter_context(scratch_folder()))
        stack.enter_context(CheckpointStore(kept.folder).lock(checkpoint.header.id))
        executor = stack.enter_context(_start_executor(cluster_run))
        return Driver(checkpoint, executor, progress, kept, can_resume=store is not None).run()


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
    checkpoint = CheckpointStore(store.folder).read(id)
    checkpoints = CheckpointStore(store.folder)
    with checkpoints.lock(id):
        checkpoint = checkpoints.read(id)
        before, header = checkpoint.run, checkpoint.header
        refuse(id, header.argv, polybench_changes(header.polybench), store.folder)
        checkpoint.run = msgspec.structs.replace(
            before,
            on=target or before.on,
            upload=upload or (before.upload and supports_upload(target or before.on)),
            strict=before.strict or strict,
        )
        refuse_to_anonymize(header, anonymous=anonymous)
        with _start_executor(checkpoint.run) as executor:
            driver = Driver(checkpoint, executor, progress, store)
            driver.restore()
            return driver.run()


def _start_executor(cluster_run: ClusterRun) -> contextlib.closing[Executor]:
    return contextlib.closing(make_executor(cluster_run.on, upload=cluster_run.upload))


def _new_ids(count: int) -> list[str]:
    """Return different IDs for studies that start at the same time."""
    ids: set[str] = set()
    while len(ids) < count:
        ids.add(new_id() if count == 1 else f"{new_id()}{secrets.token_hex(2)}")
    return list(ids)


def cluster_table(
    result: ClusterResult, study: Study, warn: Callable[[str], object], saved: Sequence[StudySummary]
) -> MergeDocument:
    """Merge the rows of all machines, and list machines without results; speeds are relative to the baseline.

    Intervals contain the spread between studies, estimated from `saved` ones. If the baseline was not measured, another
    row replaces it with a warning, as in a study on one machine.
    """
    documents = [one.document for one in result.machines if one.document is not None]
    failed_machines = {one.label: one.failure or "no document" for one in result.machines if one.document is None}
    ranked = {f"{machine_name(one)}:{row.configuration}" for one in documents for row in one.results if row.is_ranked}
    baseline = study.baseline if split_baseline(study.baseline)[0] is not None else None
    if baseline is not None and baseline not in ranked:
        warn(f"the baseline {baseline} was not measured; another row replaces it")
        baseline = None
    return merge(documents, {}, baseline, failed_machines, saved)
