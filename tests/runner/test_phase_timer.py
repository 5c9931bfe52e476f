"""Durations of timer phases, the remaining time and the fraction that is measured, with simulated time."""

from __future__ import annotations

import pytest

from polybench.log import PhaseEnded
from polybench.results.measured import measured_study
from polybench.runner import progress
from polybench.runner.progress import NullProgress, Phase, PhaseTimer
from polybench.schema.metadata import PhaseSeconds
from tests.runner.studies import RecordingProgress


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    simulated = Time()
    monkeypatch.setattr(progress, "time", simulated)
    return simulated


def durations(events: list[PhaseEnded]) -> PhaseSeconds:
    """Return the seconds of a study's phases, as its report has them."""
    seconds = measured_study(events).phases()
    assert seconds is not None
    return seconds


def run_phase(timer: PhaseTimer, time: Time, phase: Phase, seconds: float) -> None:
    with timer.phase(phase):
        time.now += seconds


def test_the_remaining_time_is_that_of_the_last_process_run_times_those_left(time: Time) -> None:
    progress, events = RecordingProgress(), list[PhaseEnded]()
    timer = PhaseTimer(progress, 3, events.append)
    run_phase(timer, time, "parity", 11.0)
    timer.start_process_run(0)
    run_phase(timer, time, "process_starts", 14.0)
    run_phase(timer, time, "rounds", 5.0)
    run_phase(timer, time, "allocation_count", 1.0)
    assert progress.seconds_left == []
    timer.start_process_run(1)
    run_phase(timer, time, "process_starts", 6.0)
    run_phase(timer, time, "rounds", 7.0)
    timer.start_process_run(2)
    run_phase(timer, time, "process_starts", 6.0)
    run_phase(timer, time, "rounds", 7.5)
    run_phase(timer, time, "native_trace", 9.0)
    run_phase(timer, time, "trainings", 50.0)
    run_phase(timer, time, "trainings", 51.0)
    assert progress.seconds_left == [20.0 * 2, 13.0]
    assert durations(events) == PhaseSeconds(
        parity=11.0,
        process_starts=[14.0, 6.0, 6.0],
        rounds=[5.0, 7.0, 7.5],
        allocation_count=1.0,
        native_trace=9.0,
        trainings=101.0,
    )


def test_the_bar_advances_with_process_runs_and_rounds(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress, 2, lambda _: None)
    run_phase(timer, time, "parity", 11.0)
    timer.start_process_run(0)
    timer.start_of("flux/cpu")
    run_phase(timer, time, "process_starts", 14.0)
    for done in range(4):
        timer.start_round(done, 4)
        timer.block_of("flux/cpu", "measuring")
    timer.start_process_run(1)
    timer.start_round(1, 2)
    run_phase(timer, time, "rounds", 5.0)
    assert [(phase.name, phase.is_timed, phase.done) for phase in progress.phases] == [
        ("parity check", False, None),
        ("starting flux/cpu", False, 0.0),
        ("starting and warming up", False, 0.0),
        ("measuring: flux/cpu", True, 0.0),
        ("measuring: flux/cpu", True, 0.125),
        ("measuring: flux/cpu", True, 0.25),
        ("measuring: flux/cpu", True, 0.375),
        ("measuring", True, 0.75),
    ]


def test_groups_of_configurations_share_the_time_of_a_process_run(time: Time) -> None:
    events = list[PhaseEnded]()
    timer = PhaseTimer(NullProgress(), 2, events.append)
    for number, starts in ((0, (3.0, 5.0)), (1, (1.0, 2.0))):
        timer.start_process_run(number)
        for seconds in starts:
            run_phase(timer, time, "process_starts", seconds)
            run_phase(timer, time, "rounds", 10.0)
    seconds = durations(events)
    assert (seconds.process_starts, seconds.rounds) == ([8.0, 3.0], [20.0, 20.0])


def test_the_first_process_run_after_a_resume_has_no_pace(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress, 5, lambda _: None)
    timer.start_process_run(3)
    run_phase(timer, time, "rounds", 9.0)
    assert progress.seconds_left == []
    assert progress.phases[0].done == 0.6
    timer.start_process_run(4)
    assert progress.seconds_left == [9.0]


def test_an_interrupted_phase_has_no_duration(time: Time) -> None:
    events = list[PhaseEnded]()
    timer = PhaseTimer(NullProgress(), 1, events.append)
    timer.start_process_run(0)
    with pytest.raises(KeyboardInterrupt), timer.phase("process_starts"):
        raise KeyboardInterrupt
    assert events == []
