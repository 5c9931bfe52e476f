"""Loads each engine and checks its parity with the reference, before anything is timed.

A check that passed in an earlier study on this machine counts, until a worker has loaded other code.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence

import msgspec
import platformdirs

from polybench.errors import ConfigurationFailed, RequiredEngineMissing
from polybench.machine import host
from polybench.parity_check.cache import CachedCheck, CheckCache, CheckContext
from polybench.parity_check.check import CheckRequest, ParityChecker, ProgramCheck, ReferenceFailed
from polybench.planning.plan import engine_spec
from polybench.protocol import calls
from polybench.protocol.calls import Prepared, Request
from polybench.protocol.process import WorkerProcess
from polybench.runner.configuration_run import CachedParity, ConfigurationRun
from polybench.runner.session import Session
from polybench.runner.workers import load_request, record_failure, start_reference, start_workers
from polybench.schema.options import CheckScope, Configuration
from polybench.schema.parity import UNCHECKED, ParityCheck

NOTHING_TO_CHECK = ParityCheck("skipped", "this engine is simulated: no computation to check")


def check_parity(session: Session, scope: CheckScope = "new", *, strict: bool = False) -> None:
    """Load and check one of each unchecked configuration; its duplicates get the same result.

    Nothing is started if the study has no parity check, or if all checks are cached. The first process run then
    finds out which engines are available. With `strict`, engines with a cached check are loaded as well, and
    RequiredEngineMissing is raised if one is unavailable. If the check is "only", it is the purpose of the study:
    configurations fail if the reference fails.
    """
    if scope == "new":
        _reuse_cached_checks(session)
    if session.plan.study.parity or strict:
        session.report_progress()
        unchecked = [run for run in session.active_runs if run.parity == UNCHECKED]
        duplicates = _duplicates([run for run in unchecked if strict or run.cached_check is None])
        for group in session.group_by_memory([first for first, *_ in duplicates]):
            with session.phase_timer.phase("parity"):
                _GroupCheck(session, required=scope == "only").run(group)
        for first, *others in duplicates:
            for run in others:
                run.copy_check(first)
    if strict:
        _require_available(session.runs)
    session.check_log()


def _reuse_cached_checks(session: Session) -> None:
    """Give unchecked configurations the result of an earlier study, to be confirmed by a worker."""
    if not session.plan.study.parity:
        return
    cache = _open_cache()
    for duplicates in _duplicates([run for run in session.active_runs if _needs_check(session, run)]):
        cached = cache.find(_cache_key(cache, session, duplicates[0]))
        if cached is not None:
            for run in duplicates:
                run.cached_check = CachedParity(cached.worker_info, cached.parity, cached.later_code)


def check_other_code(session: Session, runs: Sequence[ConfigurationRun]) -> None:
    """Check those of these runs whose cached check was made with other code, and equal configurations with them."""
    changed = [_without_repeat(run) for run in runs if run.is_active and run.is_unchecked]
    if not changed or not session.plan.study.parity:
        return
    for run in session.active_runs:
        if _without_repeat(run) in changed:
            run.cached_check = None
    check_parity(session, "all")


def _require_available(runs: Sequence[ConfigurationRun]) -> None:
    unavailable = [run for run in runs if run.status == "unavailable"]
    if unavailable:
        raise RequiredEngineMissing(
            "; ".join(f"{run.configuration.name} is unavailable: {run.reason} ({run.hint})" for run in unavailable)
        )


def _duplicates(runs: Sequence[ConfigurationRun]) -> list[list[ConfigurationRun]]:
    """Return runs of equal configurations together."""
    groups: dict[Configuration, list[ConfigurationRun]] = {}
    for run in runs:
        groups.setdefault(_without_repeat(run), []).append(run)
    return list(groups.values())


def _without_repeat(run: ConfigurationRun) -> Configuration:
    return msgspec.structs.replace(run.configuration, repeat=1)


def _needs_check(session: Session, run: ConfigurationRun) -> bool:
    return session.plan.study.parity and engine_spec(run.configuration).computes and run.is_unchecked


def _check_request(session: Session, run: ConfigurationRun) -> CheckRequest:
    study, files = session.plan.study, session.files
    job = session.plan.job(run.configuration)
    request = CheckRequest(job, files.weights, files.parity, study.parity_steps, study.timeout, files.parity_stream)
    return request._replace(program=run.source and ProgramCheck.of(run.source))


def _open_cache() -> CheckCache:
    return CheckCache(platformdirs.user_cache_path("polybench") / "parity")


def _cache_key(cache: CheckCache, session: Session, run: ConfigurationRun) -> str:
    this_host = session.host
    machine = (this_host.hostname, this_host.cpu, host.cpu_features())
    context = CheckContext(
        factory=engine_spec(run.configuration).factory,
        environment=run.env_vars | run.planned.inherited_env_vars | {"": run.planned.unrecorded_env_hash},
        python=(run.interpreter.executable, run.interpreter.version),
        machine=machine if run.configuration.device == "cpu" else (*machine, *this_host.gpus),
    )
    return cache.key(_check_request(session, run), context)


class _GroupCheck:
    """Parity check of a group of configurations: their workers start in parallel and are checked in turn."""

    def __init__(self, session: Session, *, required: bool) -> None:
        self._session, self._study, self._required = session, session.plan.study, required
        self._cache = _open_cache()
        self._checker: ParityChecker | None = None

    def run(self, group: Sequence[ConfigurationRun]) -> None:
        """Check the group; a configuration that fails or is unavailable records the reason."""
        self._session.progress.on_stage(f"starting {', '.join(run.configuration.name for run in group)}")
        with start_workers(group, self._session.logs, "parity") as workers, contextlib.ExitStack() as stack:
            for run, worker in workers.values():
                worker.send(load_request(run))
            if any(_needs_check(self._session, run) for run in group):
                with contextlib.suppress(ReferenceFailed):  # retried for each configuration
                    self._checker = self._start_checker(stack)
            for name, (run, worker) in list(workers.items()):
                try:
                    with record_failure(workers, name):
                        self._check(run, worker, stack)
                except ReferenceFailed as error:
                    self._record_reference_failure(run, error)
                self._session.report_progress()

    def _record_reference_failure(self, run: ConfigurationRun, error: ReferenceFailed) -> None:
        """Skip the check of a configuration, or fail it if required; the next one gets a new reference."""
        self._checker = None
        run.record_parity(ParityCheck("skipped", f"the reference {error}"))
        if self._required:
            run.mark_failed(ConfigurationFailed(f"not checked: the reference {error}"))
        self._session.warn(f"{run.configuration.name} is not checked: the reference failed: {error}", names=True)

    def _start_checker(self, stack: contextlib.ExitStack) -> ParityChecker:
        try:
            reference = start_reference(self._session.logs, self._study.timeout, self._session.plan.cpus)
        except ConfigurationFailed as error:
            raise ReferenceFailed(str(error)) from error
        worker = stack.enter_context(reference)
        return ParityChecker(worker, self._session.scratch, platformdirs.user_cache_path("polybench") / "reference")

    def _check(self, run: ConfigurationRun, worker: WorkerProcess, stack: contextlib.ExitStack) -> None:
        loaded = worker.receive(load_request(run), self._study.timeout)
        run.record_loaded(loaded)
        if not _needs_check(self._session, run):
            worker.request(self._build_request(run), self._study.timeout)
            if not engine_spec(run.configuration).computes:
                run.record_parity(NOTHING_TO_CHECK)
            return
        checker = self._checker = self._checker or self._start_checker(stack)
        self._session.progress.on_stage(f"checking {run.configuration.name} against the float64 reference")
        key = _cache_key(self._cache, self._session, run)
        self._cache.delete(key)  # the new check may fail or be interrupted
        parity = checker.check(worker, _check_request(self._session, run))
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        parity = msgspec.structs.replace(parity, checked_at=now)
        all_code = worker.request(calls.list_code(), self._study.timeout)
        later_code = {name: stamp for name, stamp in all_code.items() if name not in loaded.code}
        run.record_parity(parity, later_code)
        self._cache.save(key, CachedCheck(loaded, parity, later_code))

    def _build_request(self, run: ConfigurationRun) -> Request[Prepared]:
        """Return the request that builds the job, which shows whether the device is available."""
        files, job = self._session.files, self._session.plan.job(run.configuration)
        return calls.prepare(job, str(files.weights), files.parity, pipeline=files.parity_stream)
