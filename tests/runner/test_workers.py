"""The start of workers: variables, order, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines.job import COLD_START, EngineInfo
from polybench.protocol.calls import Loaded
from polybench.runner import workers
from polybench.runner.configuration_run import ConfigurationRun
from polybench.schema.options import Configuration
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


def test_versions_are_read_of_each_engine_environment_device_and_earlier_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(
        engine: str = "torch",
        device: str = "cpu",
        environment: str | None = None,
        variants: tuple[str, ...] = (),
        repeat: int = 1,
    ) -> ConfigurationRun:
        found = run_of(engine)
        configuration = Configuration(engine, variants, device, repeat, environment=environment)
        found.planned = msgspec.structs.replace(found.planned, configuration=configuration)
        return found

    before = {"torch": "2.12", "build": {"mkl": "1"}}
    others = [run("jax"), run(device="cuda"), run(environment="old"), run(environment="new")]
    saved = [(before, run(variants=("compile",))), (before, run()), (before, run(repeat=2))]
    saved += [(before, one) for one in others] + [({"torch": "2.11"}, run())]
    read: list[ConfigurationRun] = []

    def load(runs: Sequence[ConfigurationRun], timeout: float) -> None:
        assert timeout == 7
        for number, one in enumerate(runs):
            info = EngineInfo({"torch": f"3.{number}"}, {"mkl": "2"}, ("cpu",))
            one.record_loaded(Loaded(info))
        read.extend(runs)

    monkeypatch.setattr(workers, "read_engine_info", load)
    changes = workers.version_changes(saved, 7, ("build",))
    assert read == [saved[2][1], *others, saved[-1][1]]
    assert [one for one in changes if one.startswith("torch")] == [
        f"torch was {'2.11' if number == 5 else '2.12'}, now 3.{number}" for number in range(6)
    ]
    assert changes[1] == "mkl was 1, now 2"
