"""The log keeps the program that each engine ran."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.log import EngineLoaded, WorkerStarted, encode_line, read_log
from polybench.results.document import derive
from polybench.run import resume_study, run_study
from polybench.runner.progress import NullProgress
from polybench.schema.result import Program
from polybench.storage.store import Store
from tests.simulated_machine import Machine, Script, study_of

TEXT = "def train_step(state, batch): ...\n"
ENGINES = {"torch": Script(program=TEXT), "tf": Script(0.014)}


def measure(folder: Path) -> Path:
    with Machine(seed=1).simulate(ENGINES):
        run_study(study_of(ENGINES, processes=2, rounds_per_process=2), NullProgress(), store=Store(folder))
    (log,) = folder.glob("*.jsonl")
    return log


def test_the_log_has_the_text_and_its_hash_once(tmp_path: Path) -> None:
    events = read_log(measure(tmp_path))
    engines = [event for event in events if isinstance(event, EngineLoaded)]
    assert [(one.configuration, one.program) for one in engines if one.program] == [
        ("torch/cpu", Program(TEXT, hashlib.sha256(TEXT.encode()).hexdigest()))
    ]
    (loaded, with_program) = [one for one in engines if one.configuration == "torch/cpu"]
    assert msgspec.structs.replace(with_program, program=None) == loaded
    torch, tf = derive(events).results
    assert torch.program is not None
    assert (torch.program.text, tf.program) == (TEXT, None)


def test_a_worker_with_other_code_keeps_the_program(tmp_path: Path) -> None:
    events = read_log(measure(tmp_path))
    position, loaded = next((n, one) for n, one in enumerate(events) if isinstance(one, EngineLoaded) and one.program)
    later = msgspec.structs.replace(loaded, program=None, code_sha256="0" * 64)
    torch, _ = derive([*events[: position + 1], later, *events[position + 1 :]]).results
    assert torch.program == loaded.program
    assert torch.code_fingerprint == "0" * 64


def cut_after_the_first_start(log: Path) -> None:
    events = read_log(log)
    end = next(number for number, event in enumerate(events) if isinstance(event, WorkerStarted))
    log.write_bytes(b"".join(map(encode_line, events[: end + 1])))


def resume_with(program: str, log: Path) -> list[str | None]:
    changed = {**ENGINES, "torch": Script(program=program)}
    with Machine(seed=2).simulate(changed):
        document = resume_study(log.stem, NullProgress(), store=Store(log.parent))
    return [one.reason for one in document.results]


def test_a_resumed_study_runs_the_same_program(tmp_path: Path) -> None:
    log = measure(tmp_path)
    cut_after_the_first_start(log)
    assert resume_with(TEXT, log) == [None, None]
    assert sum(isinstance(one, EngineLoaded) and one.program is not None for one in read_log(log)) == 1


def test_another_program_in_a_resumed_study_fails_the_configuration(tmp_path: Path) -> None:
    log = measure(tmp_path)
    cut_after_the_first_start(log)
    reason = "its program is not the one that was timed before: start the study again"
    assert resume_with(f"{TEXT}# edited\n", log) == [reason, None]


def test_a_log_whose_program_does_not_have_its_hash_is_damaged(tmp_path: Path) -> None:
    log = measure(tmp_path)
    log.write_text(log.read_text().replace("def train_step", "def tried_step"))
    with pytest.raises(BadInput, match=r"line \d+: the SHA-256 of a program is not that of its text"):
        read_log(log)
