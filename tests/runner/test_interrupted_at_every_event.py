"""A log that ends anywhere is resumed to a complete study: every length of the logs of simulated studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from polybench.log import AnyEvent, BlockTimed, StudyEnded, WorkerStarted, encode_line, read_log
from polybench.results.document import derive
from polybench.results.measured import measured_study
from polybench.run import resume_study, run_study
from polybench.runner.progress import NullProgress
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.runner.studies import interrupt_at
from tests.simulated_machine import Machine, Script, study_of

TWO = {"torch": Script(program="def train_step(): ...\n"), "tf": Script(0.014, pause_interval=40, pause_seconds=0.096)}
THREE = TWO | {"jax": Script(0.030)}
FEW: dict[str, Any] = {"processes": 2, "rounds_per_process": 2, "steps_per_round": 5}

STUDIES: dict[str, tuple[Machine, Mapping[str, Script], dict[str, Any]]] = {
    "two engines": (Machine(seed=1), TWO, FEW),
    "three engines": (Machine(seed=2), THREE, FEW),
    "one process": (Machine(seed=3), TWO, FEW | {"processes": 1}),
    "adaptive rounds": (Machine(seed=4), TWO, {"processes": 2, "budget": 6.0}),
    "a budget that ends": (Machine(seed=5), TWO, {"processes": 2, "rounds_per_process": 100, "budget": 2.0}),
    "bursts of another program": (Machine(seed=6, bursts=0.6), TWO, FEW | {"budget": 20.0}),
    "trainings": (Machine(seed=7), TWO, FEW | {"epochs": 2, "accuracy": True}),
    "trainings up to a loss": (Machine(seed=8), TWO, FEW | {"target_loss": 1.16, "epochs": 3}),
    "a pipeline": (Machine(seed=9), TWO, FEW | {"input": "pipeline"}),
    "repeats": (Machine(seed=10), {"torch": Script(), "torch#2": Script()}, FEW),
}


def complete_log(name: str, folder: Path) -> list[AnyEvent]:
    machine, scripts, fields = STUDIES[name]
    with machine.simulate(scripts):
        run_study(study_of(scripts, **fields), NullProgress(), store=Store(folder))
    (log,) = folder.glob("*.jsonl")
    return read_log(log)


def resume_at(length: int, events: list[AnyEvent], name: str, folder: Path) -> list[AnyEvent]:
    """Resume the study from the beginning of its log; return the whole log then."""
    machine, scripts, _ = STUDIES[name]
    folder.mkdir()
    log = folder / f"{events[0].id}.jsonl"  # type: ignore[union-attr]
    log.write_bytes(b"".join(map(encode_line, events[:length])))
    with machine.simulate(scripts):
        resume_study(log.stem, NullProgress(), store=Store(folder))
    after = read_log(log)
    assert after[:length] == events[:length]  # nothing that was written has changed
    return after


def counted_blocks(document: StudyDocument) -> dict[str, list[int]]:
    """Return the number of rounds in each process run, by configuration."""
    return {one.configuration: [len(process) for process in one.nested_step_times] for one in document.results}


IN_THE_GATE = ("two engines", "bursts of another program", "trainings", "a budget that ends")


@pytest.mark.parametrize(
    "name", [name if name in IN_THE_GATE else pytest.param(name, marks=pytest.mark.wide) for name in STUDIES]
)
def test_a_log_of_any_length_is_resumed_to_a_complete_study(name: str, tmp_path: Path) -> None:
    events = complete_log(name, tmp_path)
    whole = derive(events)
    for length in range(1, len(events)):
        after = resume_at(length, events, name, tmp_path / f"resumed-{length}")
        document, measured = derive(after), measured_study(after)
        assert document.finished
        assert [one.status for one in document.results] == ["ok"] * len(whole.results)
        assert [one.configuration for one in document.results] == [one.configuration for one in whole.results]
        processes = whole.settings.processes
        assert measured.process_runs == processes
        for run in measured.runs:
            starts = [event for event in after if isinstance(event, WorkerStarted)]
            assert (
                len(run.startups) == processes <= len([one for one in starts if one.configuration == run.planned.name])
            )
        if "rounds_per_process" in STUDIES[name][2] and not any(one.cut_short for one in measured.budgets):
            assert counted_blocks(document) == counted_blocks(whole)
        for one, other in zip(document.results, whole.results, strict=True):
            assert [len(training.epochs) for training in one.trainings] == [
                len(training.epochs) for training in other.trainings
            ]
            assert len(one.trainings) == len({training.seed for training in one.trainings})
        assert len(document.resumed) == 1
        assert [type(event) for event in after].count(StudyEnded) == 1


@pytest.mark.parametrize("name", ["two engines", "bursts of another program", "trainings"])
def test_measurements_of_process_runs_that_ended_are_not_repeated(name: str, tmp_path: Path) -> None:
    events = complete_log(name, tmp_path)
    whole = measured_study(events)
    for length in range(1, len(events), 3):
        after = resume_at(length, events, name, tmp_path / f"resumed-{length}")
        cut = measured_study(events[:length])
        ended = cut.process_runs
        assert all((len(run.blocks), len(run.startups)) == (ended, ended) for run in cut.runs)
        for run, other in zip(measured_study(after).runs, whole.runs, strict=True):
            assert run.blocks[:ended] == other.blocks[:ended]
        places = Counter(
            (one.configuration, one.process, one.round, one.attempt) for one in after if isinstance(one, BlockTimed)
        )
        assert {place[1] for place, times in places.items() if times > 1} <= {ended}
        assert max(places.values(), default=0) <= 2


def test_ctrl_c_and_resuming_may_alternate(tmp_path: Path) -> None:
    """What an interrupted process run has measured is reported, and measured again when it is resumed."""
    machine, scripts, fields = STUDIES["two engines"]
    store = Store(tmp_path)
    with machine.simulate(scripts):
        study = study_of(scripts, **fields)
        document = run_study(study, interrupt_at("process 1 of 2: round 2"), store=store)
        assert counted_blocks(document) == {"torch/cpu": [1], "tf/cpu": [1]}
        document = resume_study(str(document.id), interrupt_at("process 2 of 2: round 2"), store=store)
        assert counted_blocks(document) == {"torch/cpu": [2, 1], "tf/cpu": [2, 1]}
        document = resume_study(str(document.id), NullProgress(), store=store)
    assert counted_blocks(document) == {"torch/cpu": [2, 2], "tf/cpu": [2, 2]}
    assert [(one.processes, one.trainings) for one in document.resumed] == [(0, 0), (1, 0)]
    assert {one.status for one in document.results} == {"ok"}
    assert not any("only finished measurements" in text for text in document.warnings)
