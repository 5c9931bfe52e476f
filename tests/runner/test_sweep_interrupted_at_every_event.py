"""Sweeps of the simulated machine whose log ends after any of its events: resuming measures what is missing, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from polybench.experiments.sweep import resume_sweep, run_sweep
from polybench.log import AnyEvent, BlockTimed, ProcessEnded, StudyEnded, encode_line, read_log
from polybench.planning.grid import SweepSpec
from polybench.results.sweep import points_of
from polybench.runner.progress import NullProgress
from polybench.storage.store import Store
from tests.simulated_machine import Machine, Script, study_of

SCRIPTS = {"torch": Script(), "tf": Script(0.014, pause_interval=40, pause_seconds=0.096)}
FEW: dict[str, Any] = {"processes": 2, "rounds_per_process": 2, "steps_per_round": 5}
SPECS = {
    "sweep": SweepSpec(study_of(SCRIPTS, **FEW), {"batch_size": [8, 16]}),
    "sweep with trainings": SweepSpec(
        study_of(SCRIPTS, processes=1, rounds_per_process=1, steps_per_round=5, epochs=1), {"batch_size": [8, 16]}
    ),
    "overhead": SweepSpec(study_of(SCRIPTS, **FEW), {"batch_size": [8, 16]}, "overhead"),
}


def complete_log(name: str, folder: Path) -> tuple[Path, list[AnyEvent]]:
    with Machine(seed=1).simulate(SCRIPTS):
        run_sweep(SPECS[name], NullProgress(), store=Store(folder))
    (log,) = folder.glob("*.jsonl")
    return log, read_log(log)


def resume_at(length: int, events: list[AnyEvent], name: str, log: Path) -> list[AnyEvent]:
    """Resume the sweep from the beginning of its log; return the whole log then."""
    log.write_bytes(b"".join(map(encode_line, events[:length])))
    with Machine(seed=1).simulate(SCRIPTS):
        outcome = resume_sweep(log.stem, NullProgress(), store=Store(log.parent))
    assert outcome.resumable_id is None
    after = read_log(log)
    assert after[:length] == events[:length]  # nothing that was written has changed
    return after


def counted_blocks(events: list[AnyEvent]) -> list[tuple[dict[str, int], dict[str, list[int]]]]:
    """Return the number of rounds in each process run, by configuration, of each point."""
    return [
        (values, {one.configuration: [*map(len, one.nested_step_times)] for one in document.results})
        for values, document in points_of(events)
    ]


@pytest.mark.parametrize("name", SPECS)
def test_a_log_of_any_length_is_resumed_to_a_complete_sweep(name: str, tmp_path: Path) -> None:
    log, events = complete_log(name, tmp_path)
    ends = [one for one in events if isinstance(one, StudyEnded)]
    assert [one.point for one in ends] == [0, 1, ends[-1].point]
    assert ends[-1].points == ends[:-1]
    for length in range(1, len(events)):
        after = resume_at(length, events, name, log)
        assert counted_blocks(after) == counted_blocks(events)
        assert all(
            document.finished and {one.status for one in document.results} == {"ok"} for _, document in points_of(after)
        )
        assert [one.outcome for one in after if isinstance(one, StudyEnded)] == ["finished"] * 3
        ended = {(one.point, one.process) for one in events[:length] if isinstance(one, ProcessEnded)}
        measured = Counter(
            (one.point, one.process, one.configuration, one.round, one.attempt)
            for one in after
            if isinstance(one, BlockTimed)
        )
        repeated = {place[:2] for place, times in measured.items() if times > 1}
        assert repeated.isdisjoint(ended)
        assert len(repeated) <= 1  # only the process run that was cut off
        assert max(measured.values()) <= 2
