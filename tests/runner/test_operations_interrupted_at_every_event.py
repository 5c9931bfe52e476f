"""Layers and peaks of the simulated machine whose log ends after any event: resuming measures what is missing, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.experiments import peak
from polybench.experiments.allocation_sites import resume_allocation_sites
from polybench.experiments.layers import resume_layers, run_layers
from polybench.experiments.peak import resume_peak, run_peak
from polybench.experiments.sweep import resume_sweep
from polybench.log import (
    AnyEvent,
    BlockTimed,
    KernelsChosen,
    NumpyTimed,
    OperationsTimed,
    ProcessEnded,
    StudyEnded,
    StudyResumed,
    encode_line,
    read_log,
)
from polybench.results.layers import derive_layers
from polybench.results.measured import measured_study
from polybench.results.peak import derive_peak
from polybench.runner.progress import NullProgress
from polybench.schema.measurements import LayersDocument
from polybench.storage.store import Store
from tests.simulated_machine import Machine, Script, study_of

SCRIPTS = {"torch": Script(), "torch+compile": Script(0.014), "tf": Script(pause_interval=40, pause_seconds=0.096)}
STUDY = study_of(SCRIPTS, processes=3, rounds_per_process=2, steps_per_round=5)


def measured_log(folder: Path) -> tuple[Path, list[AnyEvent]]:
    with Machine(seed=1, bursts=0.2).simulate(SCRIPTS):
        run_layers(STUDY, NullProgress(), store=Store(folder), expand_blocks=True)
    (log,) = folder.glob("layers-*.jsonl")
    return log, read_log(log)


def cut(log: Path, events: list[AnyEvent], length: int) -> None:
    log.write_bytes(b"".join(map(encode_line, events[:length])))


def check_resumed(after: list[AnyEvent], events: list[AnyEvent], length: int) -> None:
    """Check that nothing that was written has changed, and that only the process run that was cut off is repeated."""
    assert after[:length] == events[:length]
    assert any(isinstance(one, StudyResumed) for one in after[length:])
    assert [one.outcome for one in after if isinstance(one, StudyEnded)] == ["finished"]
    ended = {one.process for one in events[:length] if isinstance(one, ProcessEnded)}
    measured = Counter(
        (one.process, type(one), one.configuration, one.round, getattr(one, "attempt", None))
        for one in after
        if isinstance(one, BlockTimed | OperationsTimed)
    )
    assert {process for (process, *_), times in measured.items() if times > 1}.isdisjoint(ended)
    assert max(measured.values()) <= 2


def rounds(document: LayersDocument) -> dict[str, list[list[int]]]:
    """Return the number of rounds with operations in each process run, by configuration and row."""
    return {one.configuration: [[*map(len, row.seconds)] for row in one.rows] for one in document.configurations}


def test_a_log_of_any_length_is_resumed_to_complete_layers(tmp_path: Path) -> None:
    log, events = measured_log(tmp_path)
    for length in range(1, len(events)):
        cut(log, events, length)
        with Machine(seed=1).simulate(SCRIPTS):
            document = resume_layers(log.stem, NullProgress(), store=Store(tmp_path)).document
        after = read_log(log)
        check_resumed(after, events, length)
        assert document == derive_layers(after)
        assert {one.status for one in document.configurations} == {"ok"}
        for configuration, counted in rounds(document).items():
            assert len(counted) == (0 if "compile" in configuration else 25)
            assert all(len(processes) == 3 and 0 not in processes for processes in counted)


def test_a_log_of_any_length_is_resumed_to_complete_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peak.MATRIX_SIZES, "cpu", (64, 128))
    study = study_of({"torch": Script(), "tf": Script(0.014)})
    with Machine(seed=2).simulate(SCRIPTS):
        (id,) = run_peak(study, NullProgress(), store=Store(tmp_path), remeasure=True).ids
    log = Store(tmp_path).log_path(id)
    events = read_log(log)
    for length in range(1, len(events)):
        cut(log, events, length)
        with Machine(seed=3).simulate(SCRIPTS):
            document = resume_peak(log.stem, NullProgress(), store=Store(tmp_path)).document
        after = read_log(log)
        check_resumed(after, events, length)
        assert document == derive_peak(after)
        assert [one.kind for one in document.peaks] == ["gemm", "convolution", "memory_bandwidth"]
        assert all(one.ci95 for one in document.peaks)  # of six rounds
        assert [one.status for one in document.configurations] == ["ok", "ok"]
        assert len([one for one in after if isinstance(one, KernelsChosen)]) == 1
        has_ended = any(isinstance(one, ProcessEnded) for one in events[:length])
        timed = [sum(isinstance(one, NumpyTimed) for one in part) for part in (events[:length], after)]
        assert timed[1] == (6 if has_ended else timed[0] + 6)
        assert len(measured_study(after).numpy) == 6


@pytest.mark.parametrize("resume", [resume_layers, resume_peak, resume_allocation_sites, resume_sweep])
def test_a_log_with_names_stays_one(resume: Callable[..., Any], tmp_path: Path) -> None:
    log, events = measured_log(tmp_path)
    cut(log, events, len(events) - 1)
    with pytest.raises(BadInput, match=f"{log.stem} has started with names"):
        resume(log.stem, NullProgress(), store=Store(tmp_path), anonymous=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"round": 7}, "operations of round 7 follow"),
        ({"operations": []}, "round 1 has other operations than the first round"),
        ({"process": 5}, "in process run 5 after 1 have ended"),
        ({"configuration": "jax/cpu"}, "unknown configuration 'jax/cpu'"),
    ],
)
def test_operations_that_contradict_the_log_are_damage(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    log, events = measured_log(tmp_path)
    number = next(
        n for n, one in enumerate(events) if isinstance(one, OperationsTimed) and one.process == one.round == 1
    )
    events[number] = msgspec.structs.replace(events[number], **changes)
    with pytest.raises(BadInput, match=rf"the log of {log.stem}: line {number + 1}: .*{message}"):
        derive_layers(events)
    assert rounds(derive_layers(events, salvage=True))["torch/cpu"]
