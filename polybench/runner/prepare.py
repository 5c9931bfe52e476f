"""Prepares a study: its log, its data, weights and batches, and what the reader should know."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from polybench.engines import ENGINES
from polybench.errors import BadInput, RequiredEngineMissing
from polybench.log import BlockTimed, Header, Log
from polybench.machine import host as this_host
from polybench.machine.meters.observer import Observer
from polybench.planning import shared_files
from polybench.planning.plan import resolve
from polybench.protocol.environment import overridden_env_vars
from polybench.results.document import study_toml
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.progress import PhaseTimer, Progress
from polybench.runner.resume import refuse_changes
from polybench.runner.scratch import exclusive_lock, scratch_folder
from polybench.runner.session import Session
from polybench.schema.documents import DOCUMENT_KINDS
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import LogCommand, Study
from polybench.storage.anonymous_log import anonymous_event
from polybench.storage.store import Store


@contextlib.contextmanager
def new_log(study: Study, header: Header, store: Store | None) -> Iterator[Log]:
    """Create the log of a study, in memory without `store`; delete it if the study is refused.

    Raises BadInput for a study that this machine cannot measure, or a log that cannot be written.
    """
    with create_log(msgspec.structs.replace(header, study=study_toml(resolve(study).study)), store) as log:
        yield log


@contextlib.contextmanager
def create_log(header: Header, store: Store | None) -> Iterator[Log]:
    """Create a log with this header, as `new_log`."""
    if store is not None:
        store.ensure_writable()
    with Log.create(store.log_path(header.id) if store else None, anonymous_event) as log:
        try:
            log.add(header)
            yield log
        except (BadInput, RequiredEngineMissing, UnicodeEncodeError):
            if not any(isinstance(event, BlockTimed) for event in log.events):  # nothing was measured
                log.delete()
            raise


@contextlib.contextmanager
def open_session(
    study: Study,
    log: Log,
    progress: Progress,
    *,
    store: Store | None = None,
    measures: bool = True,
    exclusive: bool | None = None,
) -> Iterator[Session]:
    """Write the data, weights and batches of a study, and start or resume its log.

    `exclusive` is the value of the caller's `exclusive_lock`, which several studies share if a sweep measures them in
    turns; None takes that lock. Raises BadInput if the data cannot be read, there is not enough space for the files, or
    a study that is resumed has changed; nothing is written then.
    """
    plan = resolve(study)
    lock = exclusive_lock() if exclusive is None else contextlib.nullcontext(exclusive)
    with lock as is_exclusive, scratch_folder() as scratch, contextlib.ExitStack() as stack:
        observer = None
        if plan.study.metrics and measures:
            devices = {configuration.device for configuration in plan.configurations}
            observer = stack.enter_context(contextlib.closing(Observer(devices)))
        progress.on_stage("preparing data")
        timer = PhaseTimer(progress, plan.study.processes, log.add)
        with timer.phase("data"):
            files = shared_files.write(plan, scratch)
        session = Session(plan, files, log, timer, store=store, scratch=scratch, observer=observer)
        _warn_before_measuring(session, exclusive=is_exclusive)
        _warn_about_data(session)
        if log.is_resumed:
            refuse_changes(session)
            session.resume()
        else:
            session.start()
        try:
            yield session
        except RequiredEngineMissing:
            session.delete_worker_logs()
            raise


def _warn_before_measuring(session: Session, *, exclusive: bool) -> None:
    for text in session.observer.warnings if session.observer else ():
        session.warn(text, names=True)
    if not exclusive:
        session.warn("another study is running on this machine: both interfere with each other")
    for name, delay in session.plan.study.injected_delays.items():
        session.warn(f"{name} has an injected delay of {delay:.0%} per step: its times are not those of the engine")
    on_cuda = dict.fromkeys(one.engine for one in session.plan.configurations if one.device != "cpu")
    never_run = [name for name in on_cuda if name in ENGINES and ENGINES[name].ran_on is None]
    if this_host.gpu_names() and never_run:
        session.warn(
            f"polybench's tests have never run {', '.join(never_run)} on a GPU: please open an issue with this study,"
            " saved with --anonymous"
        )
    if overridden := _overridden_variables(session.own_runs, os.environ):
        session.warn(f"workers get other values than your environment has: {overridden}", names=True)
    threads = session.plan.workload.threads
    if threads > (usable := this_host.usable_threads()):
        session.warn(f"{threads} threads on {usable} usable cores: expect slow steps with varying times")


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


def _warn_about_data(session: Session) -> None:
    dataset, repeated = session.files.dataset, session.log.header.repeated_data_sha256
    if not dataset.is_official:
        session.warn(
            f"{dataset.source} is not the official CIFAR-10 (checksums differ), so accuracies are not"
            " comparable with published ones: `polybench data fetch` downloads the official data set",
            names=True,
        )
    if repeated not in (None, dataset.sha256):
        session.warn("the data have another SHA-256 than those of the study that is repeated")


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


def header_of_command(header: Header, command: LogCommand, **fields: Any) -> Header:
    """Return the header of what a command measures that is no study, with further fields."""
    id = f"{DOCUMENT_KINDS[command].id_prefix}{header.id}"
    return msgspec.structs.replace(header, id=id, command=command, **fields)
