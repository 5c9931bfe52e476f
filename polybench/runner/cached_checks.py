"""Parity checks of earlier studies on this machine that are valid for this study."""

from __future__ import annotations

import datetime

import msgspec
import platformdirs

from polybench.machine import host
from polybench.parity_check.check import CheckRequest
from polybench.parity_check.check_cache import CachedCheck, CheckCache, CheckContext
from polybench.planning.plan import engine_spec
from polybench.protocol.messages import Loaded
from polybench.results.run_state import ConfigurationRun
from polybench.runner.state import StudyState
from polybench.schema.parity import ParityCheck


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
