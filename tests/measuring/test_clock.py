"""How long the parts of a study take, and what is told of the rest; the time is made up."""

from __future__ import annotations

import pytest

from polybench.core.document.circumstances import Took
from polybench.measuring import clock
from polybench.measuring.clock import Clock, Part
from polybench.measuring.progress import Silent
from polybench.planning.estimate import Estimate


class Telling(Silent):
    def __init__(self) -> None:
        self.left: list[float] = []

    def remaining(self, seconds: float) -> None:
        self.left.append(seconds)


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(clock, "time", made)
    return made


def do(study: Clock, time: Time, part: Part, seconds: float) -> None:
    with study.part(part):
        time.now += seconds


def test_all_parts_to_come_are_in_the_time_left(time: Time) -> None:
    told = Telling()
    study = Clock(told)
    study.expected = Estimate(1.0, 10.0, 20.0, 40.0, 2.0, 8.0, 100.0)
    study.expect(2, 1)
    do(study, time, "parity", 11.0)
    do(study, time, "starts", 14.0)  # the first compiles, and tells nothing of the second
    do(study, time, "rounds", 5.0)
    do(study, time, "counting", 3.0)
    do(study, time, "starts", 6.0)
    do(study, time, "rounds", 5.0)
    do(study, time, "native", 9.0)
    do(study, time, "trainings", 50.0)
    do(study, time, "trainings", 50.0)
    assert told.left == [180.0, 170.0, 10.0 + 5.0 + 8.0 + 100.0, 108.0, 100.0, 50.0]
    assert study.took() == Took(
        parity=11.0, starts=[14.0, 6.0], rounds=[5.0, 5.0], counting=3.0, native=9.0, trainings=100.0
    )


def test_groups_of_cells_start_one_after_the_other(time: Time) -> None:
    told = Telling()
    study = Clock(told)
    study.expected = Estimate(0.0, 0.0, 40.0, 40.0, 0.0, 0.0, 0.0)
    study.expect(2, 2)
    for study.group, seconds in ((0, 3.0), (1, 5.0), (0, 1.0), (1, 2.0)):
        do(study, time, "starts", seconds)
        do(study, time, "rounds", 10.0)
    assert told.left == [80.0, 30.0 + 30.0, 20.0 + 20.0, 1.0 + 10.0]
    assert (study.took().starts, study.took().rounds) == ([8.0, 3.0], [20.0, 20.0])


def test_of_a_group_whose_cells_have_all_failed_nothing_is_to_come(time: Time) -> None:
    told = Telling()
    study = Clock(told)
    study.expected = Estimate(0.0, 0.0, 60.0, 60.0, 20.0, 0.0, 0.0)
    study.expect(3, 2)
    do(study, time, "starts", 5.0)
    do(study, time, "rounds", 8.0)
    do(study, time, "counting", 2.0)
    study.group = 1
    do(study, time, "starts", 1.0)
    do(study, time, "rounds", 0.0)
    study.all_failed(1)
    study.group = 0
    for _ in range(2):
        do(study, time, "starts", 4.0)
        do(study, time, "rounds", 8.0)
    # Of both; of both, less what the first has done; of the first alone, twice and once.
    assert told.left == [140.0, 5 * 10.0 + 5 * 8.0 + 2.0, 2 * (10.0 + 8.0), 4.0 + 8.0]
    assert (study.took().starts, study.took().rounds) == ([6.0, 4.0, 4.0], [8.0, 8.0, 8.0])


def test_what_counted_in_less_than_was_expected_leaves_nothing_to_come(time: Time) -> None:
    told = Telling()
    study = Clock(told)
    study.expected = Estimate(0.0, 0.0, 0.0, 0.0, 40.0, 0.0, 0.0)
    study.expect(2, 2)
    for study.group in range(2):
        do(study, time, "starts", 0.0)
        do(study, time, "counting", 5.0)
    for study.group in range(2):
        do(study, time, "starts", 0.0)
    assert told.left == [40.0, 5.0, 0.0, 0.0]


def test_what_an_earlier_process_has_done_is_not_expected_again(time: Time) -> None:
    told = Telling()
    study = Clock(told)
    study.expected = Estimate(1.0, 10.0, 20.0, 40.0, 2.0, 8.0, 100.0)
    study.expect_the_rest({"parity": 1.0, "starts": 0.75, "rounds": 0.75, "counting": 1.0, "trainings": 0.5})
    do(study, time, "starts", 4.0)
    do(study, time, "rounds", 9.0)
    do(study, time, "native", 8.0)
    assert told.left == [5.0 + 10.0 + 8.0 + 50.0, 58.0]


def test_what_breaks_off_is_not_a_time_of_its_part(time: Time) -> None:
    study = Clock(Silent())
    with pytest.raises(KeyboardInterrupt), study.part("starts"):
        raise KeyboardInterrupt
    assert study.took().starts == []
