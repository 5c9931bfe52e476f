"""Cold starts: of programs alone, and of workers of engines without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from polybench.errors import BadInput, ConfigurationFailed
from polybench.log import AnyEvent, ProgramStarted, WorkerStarted, encode_line, read_log
from polybench.results.document import derive
from polybench.run import resume_study, run_study
from polybench.runner import cold_start
from polybench.runner.cold_start import Program, start_program
from polybench.runner.progress import NullProgress
from polybench.schema.result import ColdStart, Result
from polybench.stats.statistics import student_interval
from polybench.storage.store import Store
from tests.simulated_machine import Machine, Script, study_of

FAKE, TORCH = Script(0.010), Script(0.020, startup_seconds=4.0, first_step_seconds=3.0)
ENGINES = {"torch": TORCH, "fake": FAKE, "tf": Script(0.014, startup_seconds=6.0)}


def measure(folder: Path, **fields: Any) -> list[AnyEvent]:
    study = study_of(ENGINES, processes=2, rounds_per_process=2, **fields)
    with Machine(seed=1).simulate(ENGINES):
        run_study(study, NullProgress(), store=Store(folder))
    (log,) = folder.glob("*.jsonl")
    return read_log(log)


def result(events: list[AnyEvent], name: str) -> Result:
    return next(one for one in derive(events).results if one.configuration == name)


def startup(events: list[AnyEvent], name: str) -> ColdStart:
    found = result(events, name).startup
    assert found is not None
    return found


def test_each_program_is_started_in_turn_after_all_timing(tmp_path: Path) -> None:
    events = measure(tmp_path, cold_starts=3)
    starts = [one for one in events if isinstance(one, ProgramStarted)]
    assert [{one.configuration for one in starts[n : n + 2]} for n in (0, 2, 4)] == [{"torch/cpu", "tf/cpu"}] * 3
    last_worker = max(number for number, one in enumerate(events) if isinstance(one, WorkerStarted))
    assert events.index(starts[0]) > last_worker


def test_a_cold_start_is_the_mean_of_its_programs_starts_with_an_interval(tmp_path: Path) -> None:
    events = measure(tmp_path, cold_starts=3)
    found = startup(events, "torch/cpu")
    starts = [one.startup for one in events if isinstance(one, ProgramStarted) and one.configuration == "torch/cpu"]
    whole = [one.cold_start_seconds for one in starts]
    assert len(set(whole)) == 3
    assert found.cold_start_seconds == pytest.approx(sum(whole) / 3)
    assert found.import_seconds == pytest.approx(sum(one.import_seconds for one in starts) / 3)
    assert found.ci95 == student_interval(whole)
    assert found.starts == 3
    assert found.tool_seconds == pytest.approx(0.05 - 0.02)  # a worker's process and the program's
    one = startup(measure(tmp_path / "one", cold_starts=1), "torch/cpu")
    assert (one.starts, one.ci95) == (1, None)


def test_workers_start_together_and_with_compiled_code_unless_their_start_is_reported(tmp_path: Path) -> None:
    def first_workers(**fields: Any) -> dict[str, WorkerStarted]:
        started = [one for one in measure(tmp_path / str(fields), **fields) if isinstance(one, WorkerStarted)]
        assert not any(one.alone for one in started if one.process > 0)
        return {one.configuration: one for one in started if one.process == 0}

    workers = first_workers(cold_starts=1)
    assert {name: one.alone for name, one in workers.items()} == {"torch/cpu": False, "tf/cpu": False, "fake/cpu": True}
    assert workers["torch/cpu"].startup is not None
    assert workers["torch/cpu"].startup.first_step_seconds < 1.0  # TORCH needs 3 s more in a first run
    alone = first_workers(cold_starts=0)
    assert all(one.alone for one in alone.values())
    assert alone["torch/cpu"].startup is not None
    assert alone["torch/cpu"].startup.first_step_seconds > 3.0


def test_an_engine_without_a_program_has_the_start_of_its_worker(tmp_path: Path) -> None:
    events = measure(tmp_path, cold_starts=2)
    fake, worker = startup(events, "fake/cpu"), next(one for one in events if isinstance(one, WorkerStarted))
    assert (worker.configuration, fake.starts, fake.tool_seconds) == ("fake/cpu", 0, None)
    assert worker.startup is not None
    assert fake.cold_start_seconds == worker.startup.cold_start_seconds


def test_the_start_of_workers_together_is_no_cold_start(tmp_path: Path) -> None:
    events = [one for one in measure(tmp_path, cold_starts=1) if not isinstance(one, ProgramStarted)]
    assert result(events, "torch/cpu").startup is None


def test_a_resumed_study_starts_the_programs_that_are_missing(tmp_path: Path) -> None:
    events = measure(tmp_path, cold_starts=3)
    (log,) = tmp_path.glob("*.jsonl")
    fourth = [number for number, one in enumerate(events) if isinstance(one, ProgramStarted)][3]
    log.write_bytes(b"".join(map(encode_line, events[: fourth + 1])))
    with Machine(seed=2).simulate(ENGINES):
        resume_study(log.stem, NullProgress(), store=Store(tmp_path))
    starts = [one.configuration for one in read_log(log) if isinstance(one, ProgramStarted)]
    assert sorted(starts) == ["tf/cpu"] * 3 + ["torch/cpu"] * 3


ALONE = "no cold start: the program of polybench export --train, started alone,"


@pytest.mark.parametrize(
    ("function", "error", "warning"),
    [
        ("_write_programs", BadInput("disk full"), "no cold starts: the programs cannot be written: disk full"),
        ("start_program", FileNotFoundError("no julia"), f"{ALONE} no julia"),
        ("start_program", ConfigurationFailed("hung"), f"{ALONE} hung"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_warning_and_costs_no_measurement(
    function: str, error: Exception, warning: str
) -> None:
    with Machine(seed=1).simulate(ENGINES), mock.patch.object(cold_start, function, side_effect=error):
        study = study_of(ENGINES, processes=2, rounds_per_process=2, cold_starts=1)
        document = run_study(study, NullProgress(), store=None)
    assert all(one.is_measured and one.status == "ok" for one in document.results)
    assert document.result("torch/cpu").startup is None
    assert warning in [*document.warnings, *document.result("torch/cpu").warnings]


CLOCK = """import json, sys, time
clock = [("process", time.monotonic())]
for phase in ("import", "data", "build", "first_step", "second_step"):
    time.sleep(0.01)
    clock.append((phase, time.monotonic()))
print("anything")
print(json.dumps({"clock": clock, "losses": [2.5, None]}))
"""


def started(text: str, folder: Path, timeout: float = 20.0) -> Any:
    """Start a program as a resumed study does that started no worker: without a folder of logs."""
    (folder / "program.py").write_text(text)
    return start_program(
        Program([sys.executable, "program.py"], folder), os.environ, folder / "logs" / "program.log", timeout
    )


def test_the_phases_of_a_real_program_are_those_of_its_clock(tmp_path: Path) -> None:
    found = started(CLOCK, tmp_path)
    assert found.losses == [2.5, None]
    phases = [getattr(found.startup, f"{name}_seconds") for name in ("import", "data", "build", "first_step")]
    assert all(0.009 < seconds < 5.0 for seconds in phases)
    assert 0.0 < found.startup.process_seconds < 5.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit('no such module')", "ended with code 1: no such module"),
        ("import os; os._exit(3)", "ended with code 3: it printed no error"),
        ("print('hello')", "printed no times of its phases"),
        ("", "printed no times of its phases"),
        (CLOCK.replace('"second_step"', '"third_step"'), "printed no times of its phases"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
    ],
)
def test_a_program_that_fails_says_why(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match=message):
        started(text, tmp_path, timeout=1.0 if "sleep(60)" in text else 60.0)
