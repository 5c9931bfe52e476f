"""Durations of timer phases and the estimated remaining time, with simulated time."""

from __future__ import annotations

import pytest

from polybench.planning.estimate import Estimate
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


def run_phase(timer: PhaseTimer, time: Time, phase: Phase, seconds: float) -> None:
    with timer.phase(phase):
        time.now += seconds


def test_the_remaining_time_includes_all_later_phases(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress)
    timer.estimate = Estimate(1.0, 10.0, 30.0, 60.0, 2.0, 8.0, 100.0)
    run_phase(timer, time, "parity", 11.0)
    timer.start_process_run(3)
    run_phase(timer, time, "process_starts", 14.0)  # the first start compiles, so it does not predict the second
    run_phase(timer, time, "rounds", 5.0)
    run_phase(timer, time, "allocation_count", 1.0)  # only in the first process run
    timer.start_process_run(2)
    run_phase(timer, time, "process_starts", 6.0)
    run_phase(timer, time, "rounds", 7.0)
    timer.start_process_run(1)
    run_phase(timer, time, "process_starts", 6.0)
    run_phase(timer, time, "rounds", 7.0)
    run_phase(timer, time, "native_trace", 9.0)
    run_phase(timer, time, "trainings", 50.0)
    run_phase(timer, time, "trainings", 50.0)
    assert progress.seconds_left == [
        210.0, 200.0, 2 * 10.0 + 2 * 5.0 + 8.0 + 100.0, 6.0 + 7.0 + 8.0 + 100.0, 108.0, 100.0, 50.0,
    ]  # fmt: skip
    assert timer.durations() == PhaseSeconds(
        parity=11.0,
        process_starts=[14.0, 6.0, 6.0],
        rounds=[5.0, 7.0, 7.0],
        allocation_count=1.0,
        native_trace=9.0,
        trainings=100.0,
    )


def test_each_phase_reports_what_is_expected_of_it(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress)
    timer.estimate = Estimate(1.0, 10.0, 30.0, 60.0, 2.0, 0.0, 0.0)
    timer.start_seconds = {"flux/cpu": 25.0}
    run_phase(timer, time, "parity", 11.0)
    timer.start_process_run(3)
    timer.start_of("flux/cpu")
    run_phase(timer, time, "process_starts", 14.0)
    run_phase(timer, time, "rounds", 5.0)
    timer.block_of("flux/cpu", "warming up")
    assert [(phase.name, phase.seconds, phase.is_timed) for phase in progress.phases] == [
        ("parity check", 10.0, False),
        ("starting flux/cpu", 25.0, False),
        ("starting and warming up", 10.0, False),
        ("measuring", 20.0, True),
        ("warming up: flux/cpu", 0.0, True),
    ]


def test_groups_of_configurations_share_the_time_of_a_process_run(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress)
    timer.estimate = Estimate(0.0, 0.0, 40.0, 40.0, 0.0, 0.0, 0.0)
    for left, starts in ((2, (3.0, 5.0)), (1, (1.0, 2.0))):
        timer.start_process_run(left)
        for seconds in starts:
            run_phase(timer, time, "process_starts", seconds)
            run_phase(timer, time, "rounds", 10.0)
    assert progress.seconds_left == [80.0, 80.0 - 3.0 - 10.0, 40.0, 40.0 - 1.0 - 10.0]
    assert (timer.durations().process_starts, timer.durations().rounds) == ([8.0, 3.0], [20.0, 20.0])


def test_the_remaining_time_of_a_resumed_study_excludes_completed_phases(time: Time) -> None:
    progress = RecordingProgress()
    timer = PhaseTimer(progress)
    timer.estimate = Estimate(1.0, 10.0, 20.0, 40.0, 2.0, 8.0, 100.0)
    timer.subtract_completed(
        {"parity": 1.0, "process_starts": 0.75, "rounds": 0.75, "allocation_count": 1.0, "trainings": 0.5}
    )
    timer.start_process_run(1)
    run_phase(timer, time, "process_starts", 4.0)
    run_phase(timer, time, "rounds", 9.0)
    run_phase(timer, time, "native_trace", 8.0)
    assert progress.seconds_left == [5.0 + 10.0 + 8.0 + 50.0, 58.0]


def test_an_interrupted_phase_has_no_duration(time: Time) -> None:
    timer = PhaseTimer(NullProgress())
    with pytest.raises(KeyboardInterrupt), timer.phase("process_starts"):
        raise KeyboardInterrupt
    assert timer.durations().process_starts == []
