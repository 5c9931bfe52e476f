"""A study from beginning to end: files, verification, replicates, trainings; saved after each of them."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.document.study import StudyDocument
from polybench.core.errors import StrictlyUnavailable
from polybench.core.spec import Study
from polybench.machine import host
from polybench.machine.meters.observer import Observer
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.clock import Clock
from polybench.measuring.environments import Environments
from polybench.measuring.native import count_native_apart
from polybench.measuring.progress import Progress
from polybench.measuring.replicates import measure
from polybench.measuring.scratch import only_study_here, scratch_folder
from polybench.measuring.state import StudyState
from polybench.measuring.training import train
from polybench.measuring.verification import verified, verify
from polybench.planning import shared_files
from polybench.planning.plan import Plan, resolve
from polybench.report.document import Context
from polybench.report.experience import Check, expected
from polybench.report.saved_studies import Store


def run_study(
    study: Study,
    progress: Progress,
    *,
    store: Store | None,
    context: Context | None = None,
    strict: bool = False,
    check: Check = "new",
) -> StudyDocument:
    """Check and measure every cell of the study.

    A cell that fails becomes a row that says why; Ctrl-C gives what was finished so far, marked.

    Args:
        study: what to measure.
        progress: told what runs, between measurements.
        store: where to save after each finished part; None saves nothing.
        context: of `new_context`; by default of a study that nobody says more of.
        strict: refuse to measure when an engine or device is unavailable.
        check: which cells: those whose engine is "new" since an earlier study has checked it, "all", or all
            of them and "only" that: nothing is measured.

    Raises:
        BadInput: before anything is started.
        StrictlyUnavailable: with `strict`, before anything is measured.
    """
    context = context or new_context()
    unfinished = Unfinished(store.folder) if store is not None and check != "only" else None
    watched = study.metrics and check != "only"
    plan = resolve(study)
    if store is not None:
        store.ensure_writable()
    claimed = unfinished.claimed(context.id) if unfinished else contextlib.nullcontext()
    with (
        claimed,
        started(
            plan,
            progress,
            store=store,
            context=context,
            unfinished=unfinished,
            watched=watched,
            check=check,
        ) as running,
    ):
        running.state.keep()
        try:
            return measured(running, strict=strict, check=check)
        except StrictlyUnavailable:
            running.state.abandon()
            raise


def measured(running: Running, *, strict: bool = False, check: Check = "new") -> StudyDocument:
    """All parts of the study that are not finished yet; arguments and errors are those of `run_study`."""
    state, scratch = running.state, running.scratch

    def parts() -> None:
        measure(state, running.observer)
        count_native_apart(state)
        train(state, scratch)

    try:
        if check == "only":
            verify(state, scratch, strict=strict, required=True)
        else:
            verified(state, scratch, parts, strict=strict, recheck=check == "all")
    except KeyboardInterrupt:
        state.interrupt()
    return state.finish()


class Running(NamedTuple):
    """A study that has its files, and nothing measured."""

    state: StudyState
    scratch: Path
    observer: Observer | None


@contextlib.contextmanager
def started(
    plan: Plan,
    progress: Progress,
    *,
    context: Context,
    store: Store | None = None,
    unfinished: Unfinished | None = None,
    watched: bool = False,
    check: Check = "new",
) -> Iterator[Running]:
    """Write the files of a study.

    Args:
        plan: what to measure.
        progress: told what runs.
        context: what is known beforehand.
        store: where it is saved.
        unfinished: where it is kept what it needs to be resumed; claimed by who calls this.
        watched: whether there is an observer.
        check: as of `run_study`, for what is expected of the time.

    Raises:
        BadInput: the data cannot be read, or there is no room for the files.
    """
    with (
        only_study_here() as alone,
        scratch_folder() as scratch,
        _observer(plan, watched) as observer,
    ):
        progress.stage("preparing data")
        clock = Clock(progress)
        with clock.part("data"):
            files = shared_files.write(plan, scratch)
        clock.expected = expected(plan, store, context.host, check=check)
        environments = Environments(plan, scratch / "environments")
        state = StudyState(plan, files, environments, progress, store, context, unfinished, clock)
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


def new_id() -> str:
    """Of what begins now."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def new_context(
    argv: Sequence[str] = (), background: Background = NO_BACKGROUND, *, anonymous: bool = False
) -> Context:
    """Of a study that begins now.

    Args:
        argv: the command line, for the record.
        background: what the study file says beside the study, for the record.
        anonymous: leave host name, user and paths out of the document.
    """
    return Context(
        id=new_id(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tool=host.tool(),
        argv=list(argv),
        background=background,
        host=host.this_host(),
        anonymous=anonymous,
    )


@contextlib.contextmanager
def _observer(plan: Plan, watched: bool) -> Iterator[Observer | None]:
    """What watches the workers; nothing does where only times are wanted."""
    if not watched:
        yield None
        return
    with contextlib.closing(Observer({cell.device for cell in plan.cells})) as observer:
        yield observer
