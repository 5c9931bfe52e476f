"""Prepares a study: the header of its log, its data, weights and batches, and what the reader should know."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence

from polybench.engines import ENGINES
from polybench.log import Header
from polybench.machine import host as this_host
from polybench.machine.meters.observer import Observer
from polybench.planning import shared_files
from polybench.planning.plan import Plan
from polybench.protocol.environment import overridden_env_vars
from polybench.results.run_state import ConfigurationRun
from polybench.runner.progress import PhaseTimer, Progress
from polybench.runner.scratch import exclusive_lock, scratch_folder
from polybench.runner.state import Saving, StudyState
from polybench.schema.metadata import NO_METADATA, Host, StudyFileMetadata


@contextlib.contextmanager
def prepare(
    plan: Plan, progress: Progress, saving: Saving, *, host: Host, measures: bool = True, exclusive: bool | None = None
) -> Iterator[StudyState]:
    """Write the data, weights and batches of a study, and create its state.

    `exclusive` is the value of the caller's `exclusive_lock`, which several studies share if a sweep measures them in
    turns; None takes that lock. Raises BadInput if the data cannot be read, or there is not enough space for the files.
    """
    lock = exclusive_lock() if exclusive is None else contextlib.nullcontext(exclusive)
    with lock as is_exclusive, scratch_folder() as scratch, contextlib.ExitStack() as stack:
        observer = None
        if plan.study.metrics and measures:
            devices = {configuration.device for configuration in plan.configurations}
            observer = stack.enter_context(contextlib.closing(Observer(devices)))
        progress.on_stage("preparing data")
        timer = PhaseTimer(progress, plan.study.processes, saving.log.add)
        with timer.phase("data"):
            files = shared_files.write(plan, scratch)
        state = StudyState(plan, files, saving, host, timer, scratch=scratch, observer=observer)
        _warn_before_measuring(state, exclusive=is_exclusive)
        _warn_about_data(state)
        yield state


def _warn_before_measuring(state: StudyState, *, exclusive: bool) -> None:
    for text in state.observer.warnings if state.observer else ():
        state.warn(text, names=True)
    if not exclusive:
        state.warn("another study is running on this machine: both interfere with each other")
    for name, delay in state.plan.study.injected_delays.items():
        state.warn(f"{name} has an injected delay of {delay:.0%} per step: its times are not those of the engine")
    on_cuda = dict.fromkeys(one.engine for one in state.plan.configurations if one.device != "cpu")
    never_run = [name for name in on_cuda if name in ENGINES and ENGINES[name].ran_on is None]
    if this_host.gpu_names() and never_run:
        state.warn(
            f"polybench's tests have never run {', '.join(never_run)} on a GPU: please open an issue with this study,"
            " saved with --anonymous"
        )
    if overridden := _overridden_variables(state.own_runs, os.environ):
        state.warn(f"workers get other values than your environment has: {overridden}", names=True)
    threads = state.plan.workload.threads
    if threads > (usable := this_host.usable_threads()):
        state.warn(f"{threads} threads on {usable} usable cores: expect slow steps with varying times")


def _overridden_variables(runs: Sequence[ConfigurationRun], user_environment: Mapping[str, str]) -> str:
    """List the user's variables that workers get with another value, or not at all, with both values."""
    configurations: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for name, (value, used) in overridden_env_vars(user_environment, run.env_vars).items():
            change = "removed" if used is None else f"set to {used}"
            configurations.setdefault((f"{name}={value}", change), []).append(run.configuration.name)
    return "; ".join(
        f"{given} ({change}{' for ' + ', '.join(names) if len(names) < len(runs) else ''})"
        for (given, change), names in configurations.items()
    )


def _warn_about_data(state: StudyState) -> None:
    dataset, repeated = state.files.dataset, state.log.header.repeated_data_sha256
    if not dataset.is_official:
        state.warn(
            f"{dataset.source} is not the official CIFAR-10 (checksums differ), so accuracies are not"
            " comparable with published ones: `polybench data fetch` downloads the official data set",
            names=True,
        )
    if repeated not in (None, dataset.sha256):
        state.warn("the data have another SHA-256 than those of the study that is repeated")


def new_id() -> str:
    """Return the ID of a run that starts now."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def new_header(
    argv: Sequence[str] = (), study_file: StudyFileMetadata = NO_METADATA, *, anonymous: bool = False
) -> Header:
    """Create the header of a study that starts now; `anonymous` leaves out host name, user and paths."""
    return Header(
        id=new_id(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        polybench=this_host.tool_version(),
        argv=[] if anonymous else list(argv),
        host=this_host.this_host(),
        title=study_file.title,
        tags=[*study_file.tags],
        published=study_file.published,
        repeated_data_sha256=study_file.data_sha256,
        anonymous=anonymous,
    )
