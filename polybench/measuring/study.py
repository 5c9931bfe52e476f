"""A study from beginning to end: files, verification, replicates, trainings; saved after each of them."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.document.study import StudyDocument
from polybench.core.errors import StrictlyUnavailable
from polybench.core.spec import Study
from polybench.machine import host
from polybench.machine.meters.observer import Observer
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.environments import Environments
from polybench.measuring.native import count_native
from polybench.measuring.progress import Progress
from polybench.measuring.replicates import measure
from polybench.measuring.scratch import only_study_here, scratch_folder
from polybench.measuring.state import StudyState
from polybench.measuring.training import train
from polybench.measuring.verification import verify
from polybench.planning import shared_files
from polybench.planning.plan import Plan, resolve
from polybench.report.document import Context
from polybench.report.saved_studies import Store


def run_study(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    argv: Sequence[str] = (),
    background: Background = NO_BACKGROUND,
    strict: bool = False,
    parity_only: bool = False,
    anonymous: bool = False,
) -> StudyDocument:
    """Check and measure every cell of the study.

    A cell that fails becomes a row that says why; Ctrl-C gives what was finished so far, marked.

    Args:
        study: what to measure.
        progress: told what runs, between measurements.
        store: where to save after each finished part; None saves nothing.
        argv: the command line, for the record.
        background: what the study file says beside the study, for the record.
        strict: refuse to measure when an engine or device is unavailable.
        parity_only: check, but measure nothing.
        anonymous: leave host name, user and paths out of the document.

    Raises:
        BadInput: before anything is started.
        StrictlyUnavailable: with `strict`, before anything is measured.
    """
    context = msgspec.structs.replace(new_context(argv, background), anonymous=anonymous)
    unfinished = Unfinished(store.folder) if store is not None and not parity_only else None
    watched = study.metrics and not parity_only
    with started(
        study, progress, store=store, context=context, unfinished=unfinished, watched=watched
    ) as running:
        running.state.keep()
        return measured(running, strict=strict, parity_only=parity_only)


def measured(running: Running, *, strict: bool = False, parity_only: bool = False) -> StudyDocument:
    """All parts of the study that are not finished yet; arguments are those of `run_study`."""
    state = running.state
    try:
        verify(state, running.scratch, strict=strict, required=parity_only)
        if not parity_only:
            measure(state, running.observer)
            count_native(state)
            train(state, running.scratch)
    except KeyboardInterrupt:
        state.interrupt()
    except StrictlyUnavailable:
        state.abandon()
        raise
    return state.finish()


class Running(NamedTuple):
    """A study that has its files, and nothing measured."""

    state: StudyState
    scratch: Path
    observer: Observer | None


@contextlib.contextmanager
def started(
    study: Study,
    progress: Progress,
    *,
    context: Context,
    store: Store | None = None,
    unfinished: Unfinished | None = None,
    watched: bool = False,
) -> Iterator[Running]:
    """Judge the study and write its files.

    Args:
        study: what to measure.
        progress: told what runs.
        context: what is known beforehand.
        store: where it is saved.
        unfinished: where it is kept what it needs to be resumed.
        watched: whether there is an observer.

    Raises:
        BadInput: before anything is started.
    """
    plan = resolve(study)
    if store is not None:
        store.ensure_writable()
    claimed = unfinished.claimed(context.id) if unfinished else contextlib.nullcontext()
    with (
        claimed,
        only_study_here() as alone,
        scratch_folder() as scratch,
        _observer(plan, watched) as observer,
    ):
        progress.stage("preparing data")
        files = shared_files.write(plan, scratch)
        environments = Environments(plan, scratch / "environments")
        state = StudyState(plan, files, environments, progress, store, context, unfinished)
        _warn_beforehand(state, observer, alone=alone)
        _warn_of_data(state, context.background)
        yield Running(state, scratch, observer)


def _warn_beforehand(state: StudyState, observer: Observer | None, *, alone: bool) -> None:
    for text in observer.warnings if observer else ():
        state.warn(text)
    if not alone:
        state.warn("another study runs on this machine: they disturb each other, and both are less certain")
    for name, share in state.plan.study.handicaps.items():
        state.warn(
            f"{name} waits in each step, {share:.0%} of it, as the study's handicaps say: not its own time"
        )
    threads = state.plan.workload.threads
    if threads > (usable := host.usable_threads()):
        state.warn(f"{threads} threads on {usable} usable cores: expect slow and uneven steps")


def _warn_of_data(state: StudyState, background: Background) -> None:
    dataset = state.files.dataset
    if not dataset.official:
        state.warn(
            f"{dataset.source} has the format of CIFAR-10, and is not the official data set: its files have"
            " other checksums, so accuracies are not those of others; `polybench data fetch` gets it"
        )
    if background.data_sha256 not in (None, dataset.sha256):
        state.warn("the data are not those of the study that is measured again: they have another SHA-256")


def new_context(argv: Sequence[str], background: Background = NO_BACKGROUND) -> Context:
    """Of a study that begins now; arguments are those of `run_study`."""
    now = datetime.datetime.now(datetime.UTC)
    return Context(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        created=now.isoformat(timespec="seconds"),
        tool=host.tool(),
        argv=list(argv),
        background=background,
        host=host.this_host(),
    )


@contextlib.contextmanager
def _observer(plan: Plan, watched: bool) -> Iterator[Observer | None]:
    """What watches the workers; nothing does where only times are wanted."""
    if not watched:
        yield None
        return
    with contextlib.closing(Observer({cell.device for cell in plan.cells})) as observer:
        yield observer
