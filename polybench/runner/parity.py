"""Loads each engine and checks its parity with the reference, before anything is timed."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import platformdirs

from polybench.errors import ConfigurationFailed, EngineUnavailable, RequiredEngineMissing
from polybench.machine import host
from polybench.parity_check.cache import CachedCheck, CheckCache, CheckContext
from polybench.parity_check.check import CheckRequest, ParityChecker, ReferenceFailed
from polybench.planning.plan import engine_spec
from polybench.protocol import calls
from polybench.protocol.calls import Loaded
from polybench.protocol.process import WorkerProcess
from polybench.results.run_state import ConfigurationRun
from polybench.runner.state import StudyState
from polybench.runner.workers import load_request, start_reference, start_worker
from polybench.schema.options import Configuration
from polybench.schema.parity import UNCHECKED, ParityCheck

NOTHING_TO_CHECK = ParityCheck("skipped", "this engine is simulated: no computation to check")


def check_then_measure(
    state: StudyState, scratch: Path, measure: Callable[[], None], *, strict: bool, recheck: bool = False
) -> None:
    """Check every configuration, then measure.

    If a worker loads other code than a cached check was made with, that engine is checked before it is
    measured.

    Args:
        state: of the study.
        scratch: the study's folder for files.
        measure: runs all unfinished phases of the study; it is called again after a StaleCheck.
        strict: as in `check_all`.
        recheck: as in `check_all`.

    Raises:
        RequiredEngineMissing: with `strict`.
    """
    while True:
        check_all(state, scratch, strict=strict, recheck=recheck)
        try:
            measure()
        except StaleCheck:
            state.completed.parity_check, recheck = False, True
        else:
            return


def check_all(state: StudyState, scratch: Path, *, strict: bool, required: bool = False, recheck: bool = False) -> None:
    """Load and check one of each configuration; its duplicates get the same result.

    Unless `strict`, nothing is started if the study has no parity check, or if all checks are cached. The
    first process run then finds out which engines are available.

    Args:
        state: of the study; its runs receive engine info, parity and the reason of a failure.
        scratch: the study's folder for files.
        strict: refuse to continue if an engine or device is unavailable.
        required: the parity check is the purpose of the study: cached checks are not used, and configurations
            fail if the reference fails.
        recheck: do not use cached checks.

    Raises:
        RequiredEngineMissing: with `strict`.
    """
    if state.completed.parity_check and strict:
        _require_available(state.runs)
    if state.completed.parity_check or (not state.plan.study.parity and not strict):
        return
    first_of_each = _first_of_each(state.active_runs)
    candidates = list(first_of_each.values())
    cached_checks = CachedChecks(state)
    reused = []
    if state.plan.study.parity and not (required or recheck):
        reused = [run for run in candidates if engine_spec(run.configuration).computes and cached_checks.reuse(run)]
    state.report_progress()
    to_start = candidates if strict else [run for run in candidates if run not in reused]
    for group in state.group_by_memory(to_start):
        with state.phase_timer.phase("parity"):
            _GroupCheck(state, scratch, group, cached_checks, required).run()
    _copy_to_duplicates(state.active_runs, first_of_each)
    if strict:
        _require_available(state.runs)
    state.completed.parity_check = True
    state.save()


def _require_available(runs: Sequence[ConfigurationRun]) -> None:
    unavailable = [run for run in runs if run.status == "unavailable"]
    if unavailable:
        raise RequiredEngineMissing(
            "; ".join(f"{run.configuration.name} is unavailable: {run.reason} ({run.hint})" for run in unavailable)
        )


def _first_of_each(runs: Sequence[ConfigurationRun]) -> dict[Configuration, ConfigurationRun]:
    """Return the first unchecked run of each configuration; its result holds for all unchecked duplicates."""
    first_runs: dict[Configuration, ConfigurationRun] = {}
    for run in runs:
        if run.parity == UNCHECKED:
            first_runs.setdefault(_without_repeat(run.configuration), run)
    return first_runs


def _without_repeat(configuration: Configuration) -> Configuration:
    return msgspec.structs.replace(configuration, repeat=1)


def _copy_to_duplicates(
    runs: Sequence[ConfigurationRun], first_of_each: Mapping[Configuration, ConfigurationRun]
) -> None:
    """Copy check results to duplicates that have neither failed nor been checked themselves."""
    for run in runs:
        if run.parity != UNCHECKED:
            continue
        first = first_of_each[_without_repeat(run.configuration)]
        run.status, run.reason, run.hint = first.status, first.reason, first.hint
        run.log_path, run.engine_info, run.parity = first.log_path, first.engine_info, first.parity
        run.cached_worker_info = first.cached_worker_info


class _GroupCheck:
    """Parity check of a group of configurations: their workers start in parallel and are checked in turn."""

    def __init__(
        self,
        state: StudyState,
        scratch: Path,
        group: Sequence[ConfigurationRun],
        cached_checks: CachedChecks,
        required: bool,
    ) -> None:
        self._state, self._scratch, self._group = state, scratch, group
        self._cached_checks = cached_checks
        self._study, self._files = state.plan.study, state.files
        self._required = required
        self._checker: ParityChecker | None = None

    def run(self) -> None:
        """Check the group; a configuration that fails or is unavailable records the reason."""
        self._state.progress.on_stage(f"starting {', '.join(run.configuration.name for run in self._group)}")
        with contextlib.ExitStack() as stack:
            workers = [(run, stack.enter_context(start_worker(run, self._state.logs, "parity"))) for run in self._group]
            for run, worker in workers:
                worker.send(load_request(run))
            if any(self._needs_check(run) for run in self._group):
                with contextlib.suppress(ReferenceFailed):  # retried for each configuration
                    self._checker = self._start_checker(stack)
            for run, worker in workers:
                try:
                    self._check(run, worker, stack)
                except (ConfigurationFailed, EngineUnavailable) as error:
                    run.mark_failed(error, worker.log_path)
                    worker.kill()
                except ReferenceFailed as error:
                    self._record_reference_failure(run, error)
                self._state.report_progress()

    def _record_reference_failure(self, run: ConfigurationRun, error: ReferenceFailed) -> None:
        """Skip the check of a configuration, or fail it if required; the next one gets a new reference."""
        self._checker = None
        if self._required:
            run.status, run.reason = "failed", f"not checked: the reference {error}"
        run.parity = ParityCheck("skipped", f"the reference {error}")
        self._state.warn(f"{run.configuration.name} is not checked: the reference failed: {error}")

    def _start_checker(self, stack: contextlib.ExitStack) -> ParityChecker:
        try:
            reference = start_reference(self._state.logs, self._study.timeout, self._state.plan.cpus)
        except ConfigurationFailed as error:
            raise ReferenceFailed(str(error)) from error
        worker = stack.enter_context(reference)
        return ParityChecker(worker, self._scratch, platformdirs.user_cache_path("polybench") / "reference")

    def _check(self, run: ConfigurationRun, worker: WorkerProcess, stack: contextlib.ExitStack) -> None:
        loaded = worker.receive(load_request(run), self._study.timeout)
        confirm_check(run, loaded)
        run.engine_info = loaded.info
        if not self._needs_check(run):
            self._build_only(run, worker)
            return
        checker = self._checker = self._checker or self._start_checker(stack)
        self._state.progress.on_stage(f"checking {run.configuration.name} against the float64 reference")
        self._cached_checks.invalidate(run)
        parity = checker.check(worker, make_check_request(self._state, run))
        run.parity = self._cached_checks.store(run, loaded, parity)

    def _needs_check(self, run: ConfigurationRun) -> bool:
        return self._study.parity and engine_spec(run.configuration).computes and run.parity == UNCHECKED

    def _build_only(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Build the job, to find out whether the device is available."""
        files, job = self._files, self._state.plan.job(run.configuration)
        request = calls.prepare(job, str(files.weights), files.parity, pipeline=files.parity_stream)
        worker.request(request, self._study.timeout)
        if not engine_spec(run.configuration).computes:
            run.parity = NOTHING_TO_CHECK


def make_check_request(state: StudyState, run: ConfigurationRun) -> CheckRequest:
    """Return the request that checks this configuration."""
    study, files = state.plan.study, state.files
    job = state.plan.job(run.configuration)
    return CheckRequest(job, files.weights, files.parity, study.parity_steps, study.timeout, files.parity_stream)


class CachedChecks:
    """Parity checks from earlier studies of this user.

    Args:
        state: of the current study.
    """

    def __init__(self, state: StudyState) -> None:
        self._state = state
        self._cache = CheckCache(platformdirs.user_cache_path("polybench") / "parity")

    def reuse(self, run: ConfigurationRun) -> bool:
        """Copy the cached result of this configuration to its run, if there is one.

        The result is valid once a worker has loaded the same code as then; see `confirm_check`.
        """
        cached = self._cache.find(self._key(run))
        if cached is None:
            return False
        run.engine_info, run.parity, run.cached_worker_info = (
            cached.worker_info.info,
            cached.parity,
            cached.worker_info,
        )
        return True

    def invalidate(self, run: ConfigurationRun) -> None:
        """Delete the cached result of this configuration, since a new check may fail or be interrupted."""
        self._cache.delete(self._key(run))

    def store(self, run: ConfigurationRun, loaded: Loaded, parity: ParityCheck) -> ParityCheck:
        """Add the current time to a result; cache it for later studies if it is a pass."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        parity = msgspec.structs.replace(parity, checked_at=now)
        self._cache.save(self._key(run), CachedCheck(loaded, parity))
        return parity

    def _key(self, run: ConfigurationRun) -> str:
        this_host = self._state.host
        machine = (this_host.hostname, this_host.cpu, host.cpu_features())
        context = CheckContext(
            factory=engine_spec(run.configuration).factory,
            environment=run.env_vars | run.inherited_env_vars,
            python=(run.interpreter.executable, run.interpreter.version),
            machine=machine if run.configuration.device == "cpu" else (*machine, *this_host.gpus),
        )
        return self._cache.key(make_check_request(self._state, run), context)


class StaleCheck(Exception):
    """A cached check is not valid for the engine, or cannot be confirmed in time.

    The engine needs a new check.
    """


def confirm_check(run: ConfigurationRun, loaded: Loaded) -> bool:
    """Return whether the worker has loaded the code of the cached check, if any; else discard the check."""
    if run.cached_worker_info is None or run.cached_worker_info == loaded:
        run.cached_worker_info = None
        return True
    run.discard_check()
    return False
