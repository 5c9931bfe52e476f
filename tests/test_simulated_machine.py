"""The simulated machine shows to the real program what its truth says."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from polybench.experiments.layers import run_layers
from polybench.machine import host, interference
from polybench.planning.schedule import STOPPING_CHECKS
from polybench.protocol.calls import BlockMeasured
from polybench.render import render
from polybench.runner.progress import NullProgress
from polybench.schema.result import Result
from polybench.stats.statistics import margin_of_error, ratio
from tests.simulated_machine import Machine, Script, SimulatedWorker, repeat, study_of

STEADY = {"process": 0.0, "round": 0.0, "tail": 0.0}


def mean_of_steps(result: Result) -> float:
    return fmean(seconds for process in result.nested_step_times for steps in process for seconds in steps)


@pytest.mark.parametrize(
    ("machine", "script"),
    [
        (Machine(), Script(0.010)),
        (Machine(slow_processes=0.3), Script(0.010)),
        (Machine(), Script(0.020, pause_interval=7, pause_seconds=0.05)),
        (Machine(), Script(0.020, pause_interval=7, pause_seconds=0.05, off_the_clock=True)),
        (Machine(), Script(0.002, seconds_per_item=0.0001)),
    ],
    ids=["quiet", "bimodal", "pauses", "off the clock", "cost of an item"],
)
def test_many_steps_have_the_mean_that_the_machine_names(machine: Machine, script: Script) -> None:
    document = machine.measure({"torch": script}, processes=60, rounds_per_process=5, steps_per_round=40)
    assert mean_of_steps(document.results[0]) == pytest.approx(machine.mean_seconds(script), rel=0.02)


def test_a_study_on_a_steady_machine_finds_the_typical_step_and_the_collector() -> None:
    machine, script = Machine(**STEADY), Script(0.020, pause_interval=10, pause_seconds=0.1)
    document = machine.measure({"torch": Script(0.020), "torch#2": script, "tf": Script(0.010)}, processes=2)
    torch, collecting, tf = document.results
    for result, expected in ((torch, script), (collecting, script), (tf, Script(0.010))):
        assert result.step_time is not None
        assert result.step_time.median == pytest.approx(machine.typical_seconds(expected), rel=1e-3)
    assert collecting.configuration == "torch/cpu#2"
    assert collecting.gc.seconds_per_step == pytest.approx(0.010, rel=0.1)
    assert torch.gc.full_collections == 0


def test_another_program_is_visible_in_the_kernels_counters() -> None:
    seen = Machine(bursts=0.3).measure({"torch": Script()}, processes=5)
    unseen = Machine(bursts=0.3, visible_bursts=False).measure({"torch": Script()}, processes=5)
    assert seen.results[0].interference.blocks_rerun
    assert unseen.results[0].interference.blocks_rerun == 0
    assert mean_of_steps(unseen.results[0]) > 1.05 * mean_of_steps(seen.results[0])


def test_the_counters_have_every_burst() -> None:
    machine = Machine(seed=3, bursts=1.0)  # one follows the other
    for _ in range(50):
        machine.advance(0.27)
        assert machine.counters().busy_seconds == pytest.approx(machine.now)


def test_studies_of_one_machine_differ_by_their_own_effects() -> None:
    machine = Machine(**STEADY, study=0.1, shared_study=0.1)
    studies = [machine.measure({"torch": Script(), "tf": Script()}, processes=2) for _ in range(2)]
    steps = [result.step_seconds for study in studies for result in study.results]
    assert len({round(seconds, 4) for seconds in steps}) == 4


def test_one_seed_gives_one_study() -> None:
    steps = [
        Machine(seed=seed, bursts=0.1, drift=0.05).measure({"torch": Script()}).results[0].step_times
        for seed in (3, 3, 4)
    ]
    assert steps[0] == steps[1] != steps[2]


def test_layers_are_timed_beside_whole_steps() -> None:
    scripts = {"torch": Script(0.020)}
    with Machine(**STEADY).simulate(scripts):
        (configuration,) = run_layers(study_of(scripts, processes=2), NullProgress()).document.configurations
    assert configuration.step_seconds == pytest.approx(0.0206, rel=0.05)
    assert sum(row.seconds_per_step for row in configuration.rows) == pytest.approx(0.8 * 0.020, rel=0.1)


@pytest.mark.parametrize("others", [0, 7])
def test_a_cold_start_is_that_of_a_first_run_alone(others: int) -> None:
    scripts = {
        "torch": Script(0.020, startup_seconds=2.0, first_step_seconds=3.0),
        **{("tf" if number == 1 else f"tf#{number}"): Script() for number in range(1, others + 1)},
    }
    document = Machine(**STEADY).measure(scripts, processes=2, rounds_per_process=2)
    startup = document.result("torch/cpu").startup
    assert startup is not None
    assert startup.import_seconds == pytest.approx(2.0)
    assert startup.first_step_seconds == pytest.approx(3.020, abs=0.01)
    assert startup.detail["first_step_with_cached_code_seconds"] == pytest.approx(0.020, abs=0.01)


def test_rounds_with_interference_are_in_neither_the_typical_nor_the_mean_step() -> None:
    machine, script = Machine(seed=1, **STEADY, bursts=0.2), Script()
    fields = {"rounds_per_process": 10, "steps_per_round": 20, "budget": 5.0}  # which leaves no time for reruns
    (result,) = machine.measure({"torch": script}, processes=1, **fields).results
    assert mean_of_steps(result) > 1.05 * machine.mean_seconds(script)
    assert result.step_time is not None
    assert result.step_time.median == pytest.approx(machine.typical_seconds(script), rel=0.01)
    assert result.step_seconds == pytest.approx(machine.mean_seconds(script), rel=0.02)


def test_a_row_without_a_quiet_timing_block_keeps_its_step_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "has_interference", lambda *_: True)
    fields = {"rounds_per_process": 4, "steps_per_round": 20, "wait_idle": 0.0}
    document = Machine(seed=1, **STEADY).measure({"torch": Script(), "tf": Script()}, processes=2, **fields)
    assert document.settings.baseline is None
    for result in document.results:
        assert (result.busy, result.step_time, result.items_per_second, result.vs_baseline) == (True, None, None, None)
        assert result.reason == "other programs used the cores in every timing block"
        assert result.hint is not None
        assert len(result.nested_step_times) == 2
    assert "NO RESULT: other programs used the cores in every timing block." in render(document)


def test_waits_for_an_idle_machine_are_not_charged_to_the_budget() -> None:
    fields = {"rounds_per_process": 20, "steps_per_round": 5, "wait_idle": 1000.0}
    document = Machine(bursts=0.7).measure({"torch": Script(0.020)}, processes=2, budget=12.0, **fields)
    assert document.host.idle_wait_seconds >= 12
    assert [len(process) for process in document.results[0].nested_step_times] == [20, 20]
    assert not any("budget" in text for text in document.warnings)


def test_reruns_of_timing_blocks_do_not_count_as_time_of_a_round() -> None:
    """They use spare seconds only, so all rounds fit. As part of a round, later rounds would look too long."""
    fields = {"rounds_per_process": 10, "steps_per_round": 20, "budget": 8.0}
    studies = [
        machine.measure({"torch": Script()}, processes=1, **fields).results[0]
        for machine in repeat(Machine(seed=1, **STEADY, bursts=0.2), 8)
    ]
    assert [len(result.nested_step_times[0]) for result in studies] == [10] * 8
    assert sum(result.interference.blocks_rerun or 0 for result in studies) > 8


def test_rounds_end_at_half_of_the_margin_within_the_first_process() -> None:
    margin, rounds = 0.05, set()
    for machine in repeat(Machine(round=0.015, tail=0.0), 10):
        document = machine.measure({"torch": Script(), "tf": Script()}, processes=2, margin=margin, budget=1000.0)
        first, *_ = zip(*(result.nested_step_times for result in document.results), strict=True)
        rounds.add(len(first[0]))
        assert margin_of_error(ratio([first[0]], [first[1]])) <= margin / 2
    assert max(rounds) > min(rounds) == STOPPING_CHECKS[0]


def test_only_the_first_process_decides_how_many_rounds_are_enough() -> None:
    chosen = set()
    for machine in repeat(Machine(process=0.0, round=0.03, tail=0.0), 5):
        document = machine.measure({"torch": Script(), "tf": Script()}, processes=6, margin=0.05, budget=1000.0)
        rounds = {len(process) for result in document.results for process in result.nested_step_times}
        assert len(rounds) == 1
        chosen |= rounds
    assert max(chosen) > STOPPING_CHECKS[0]


def test_reruns_of_timing_blocks_are_charged_to_the_budget() -> None:
    """Interference affects nearly all blocks; the rounds would take 126 s if reruns were free."""
    fields = {"rounds_per_process": 20, "steps_per_round": 20, "budget": 100.0, "wait_idle": 0.0}
    document = Machine(seed=1, **STEADY, bursts=0.9).measure({"torch": Script()}, processes=2, **fields)
    assert document.results[0].interference.blocks_rerun
    assert document.phase_seconds is not None
    charged = sum(document.phase_seconds.rounds) - document.host.idle_wait_seconds
    assert charged < 105  # with the calibration of each process, which is not charged


def test_each_round_has_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[int] = []
    measure_block = SimulatedWorker.measure_block

    def recorded(worker: SimulatedWorker, **arguments: Any) -> BlockMeasured:
        workers.append(worker.pid)
        return measure_block(worker, **arguments)

    monkeypatch.setattr(SimulatedWorker, "measure_block", recorded)
    scripts = dict.fromkeys(("torch", "tf", "jax"), Script())
    Machine(**STEADY).measure(scripts, processes=2, rounds_per_process=6, steps_per_round=5)
    orders = [tuple(pid % 3 for pid in workers[start : start + 3]) for start in range(0, len(workers), 3)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    first, second = orders[:6], orders[6:]
    assert len({*first}) > 1
    assert first != second


def test_each_turn_of_a_sweep_has_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[int, int] = {}
    measure_block = SimulatedWorker.measure_block

    def recorded(worker: SimulatedWorker, **arguments: Any) -> BlockMeasured:
        sizes.setdefault(worker.pid, worker.simulated.batch_size)
        return measure_block(worker, **arguments)

    monkeypatch.setattr(SimulatedWorker, "measure_block", recorded)
    fields = {"processes": 6, "rounds_per_process": 1, "steps_per_round": 1}
    Machine(**STEADY).measure_points({"torch": Script()}, {"batch_size": [1, 2, 3]}, **fields)
    order = [*sizes.values()]
    turns = [tuple(order[start : start + 3]) for start in range(0, len(order), 3)]
    assert [sorted(turn) for turn in turns] == [[1, 2, 3]] * 6
    assert len({*turns}) > 1


def test_groups_that_exceed_memory_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 1)
    fields = {"processes": 2, "rounds_per_process": 100, "steps_per_round": 20, "budget": 20.0}
    document = Machine(**STEADY).measure({"torch": Script(), "tf": Script()}, **fields)
    assert any("measuring 2 groups" in text for text in document.warnings)
    assert document.phase_seconds is not None
    assert sum(document.phase_seconds.rounds) < 23  # with the calibrations, which are not charged
