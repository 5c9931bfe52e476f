"""Prepares a study: its document's header, its data, weights and batches, and what the reader should know."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from polybench.machine import host
from polybench.machine.meters.observer import Observer
from polybench.planning import shared_files
from polybench.planning.plan import Plan
from polybench.results.document import DocumentHeader
from polybench.runner.checkpoint import CheckpointStore
from polybench.runner.progress import PhaseTimer, Progress
from polybench.runner.scratch import exclusive_lock, scratch_folder
from polybench.runner.state import StudyState
from polybench.runner.workers import Environments
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.storage.past_durations import CheckScope, estimate_duration
from polybench.storage.store import Store


class PreparedStudy(NamedTuple):
    """A study with its files, before any measurement."""

    state: StudyState
    scratch: Path
    observer: Observer | None


@contextlib.contextmanager
def prepare(
    plan: Plan,
    progress: Progress,
    *,
    header: DocumentHeader,
    store: Store | None = None,
    checkpoints: CheckpointStore | None = None,
    observed: bool = False,
    parity_check: CheckScope = "new",
) -> Iterator[PreparedStudy]:
    """Write the files of a study, and create its state.

    Args:
        plan: what to measure.
        progress: receives progress reports.
        header: of the document.
        store: where the study is saved.
        checkpoints: where its checkpoint is written; the caller holds its lock.
        observed: whether an observer reads the resource usage of workers.
        parity_check: as in `run_study`, for the estimated duration.

    Raises:
        BadInput: the data cannot be read, or there is not enough space for the files.
    """
    with (
        exclusive_lock() as exclusive,
        scratch_folder() as scratch,
        _observer(plan, observed) as observer,
    ):
        progress.on_stage("preparing data")
        timer = PhaseTimer(progress)
        with timer.phase("data"):
            files = shared_files.write(plan, scratch)
        timer.estimate = estimate_duration(plan, store, header.host, check=parity_check)
        environments = Environments(plan, scratch / "environments")
        state = StudyState(plan, files, environments, progress, store, header, checkpoints, timer)
        _warn_before_measuring(state, observer, exclusive=exclusive)
        _warn_about_data(state, header.study_file)
        yield PreparedStudy(state, scratch, observer)


def _warn_before_measuring(state: StudyState, observer: Observer | None, *, exclusive: bool) -> None:
    for text in observer.warnings if observer else ():
        state.warn(text)
    if not exclusive:
        state.warn("another study is running on this machine: both interfere with each other")
    for name, delay in state.plan.study.injected_delays.items():
        state.warn(f"{name} has an injected delay of {delay:.0%} per step: its times are not those of the engine")
    threads = state.plan.workload.threads
    if threads > (usable := host.usable_threads()):
        state.warn(f"{threads} threads on {usable} usable cores: expect slow steps with varying times")


def _warn_about_data(state: StudyState, study_file: StudyFileMetadata) -> None:
    dataset = state.files.dataset
    if not dataset.is_official:
        state.warn(
            f"{dataset.source} is not the official CIFAR-10 (checksums differ), so accuracies are not"
            " comparable with published ones: `polybench data fetch` downloads the official data set"
        )
    if study_file.data_sha256 not in (None, dataset.sha256):
        state.warn("the data have another SHA-256 than those of the study that is repeated")


def new_id() -> str:
    """Return the ID of a run that starts now."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def new_header(
    argv: Sequence[str] = (), study_file: StudyFileMetadata = NO_METADATA, *, anonymous: bool = False
) -> DocumentHeader:
    """Create the header of a study that starts now.

    Args:
        argv: the command line, for the document.
        study_file: metadata of the study file, for the document.
        anonymous: leave host name, user and paths out of the document.
    """
    return DocumentHeader(
        id=new_id(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tool_version=host.tool_version(),
        argv=list(argv),
        study_file=study_file,
        host=host.this_host(),
        anonymous=anonymous,
    )


@contextlib.contextmanager
def _observer(plan: Plan, observed: bool) -> Iterator[Observer | None]:
    """Yield an observer of the workers' resource usage; None if only times are wanted."""
    if not observed:
        yield None
        return
    with contextlib.closing(Observer({configuration.device for configuration in plan.configurations})) as observer:
        yield observer
