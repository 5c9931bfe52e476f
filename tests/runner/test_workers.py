"""The start of workers: variables, order, and who waits for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.engines.job import COLD_START
from polybench.runner import workers
from tests.factories import run_of


@pytest.mark.parametrize("cold", [False, True])
def test_only_a_cold_worker_ignores_the_compiled_code_of_others(
    cold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(workers, "WorkerProcess", lambda *arguments: started.append(arguments))
    run = run_of("fake", env_vars={"OMP_NUM_THREADS": "3"})
    workers.start_worker(run, tmp_path, "0", cold=cold, extra_env_vars={"POOL": "off"})
    ((environment, log, _),) = started
    assert environment == {"OMP_NUM_THREADS": "3", "POOL": "off"} | ({COLD_START: "yes"} if cold else {})
    assert log == tmp_path / "fake_cpu.0.log"
