"""Reads the installed version of each configuration's framework, in a worker that only imports it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.protocol.messages import Loaded
from polybench.results.run_state import ConfigurationRun
from polybench.runner.workers import load_request, start_worker


def read_engine_info(runs: Sequence[ConfigurationRun], timeout: float) -> None:
    """Read the engine info of configuration runs; a run whose engine is unavailable records the reason.

    Their workers start in parallel, and end before this returns. Each has `timeout` seconds.
    """
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polybench-info-")))
        # A cold start, because precompiling code for the cache would take a minute.
        workers = [
            (run, stack.enter_context(start_worker(run, logs, "info", cold=True))) for run in runs if run.is_active
        ]
        for run, worker in workers:
            worker.send(load_request(run))
        for run, worker in workers:
            try:
                run.engine_info = worker.receive(load_request(run), Loaded, timeout).info
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.mark_failed(error, worker.log_path)
