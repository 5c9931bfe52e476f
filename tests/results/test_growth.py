"""Growth of the memory in use: the estimate, its interval, and when a leak is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from polybench.log import MemoryMeasured
from polybench.render import render
from polybench.results.growth import NOTABLE_GROWTH, add_growth, growth_of_process, growth_warnings
from polybench.schema.metrics import select_metrics
from polybench.schema.resources import Memory, MemoryInUse
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import student_interval
from tests.factories import run_of
from tests.simulated_machine import Machine, Script

STEPS = [0, 5, 10, 15, 20]
LEAK = 100_000


def in_use(*increments: int, steps: Sequence[int] = STEPS) -> MemoryInUse:
    return MemoryInUse([*steps], [1 << 30, *((1 << 30) + np.cumsum(increments)).tolist()])


def grown(*processes: float) -> Memory:
    return add_growth(Memory(), [[in_use(*[round(5 * growth)] * 4)] for growth in processes])


def test_the_growth_of_a_process_is_the_median_of_the_bytes_per_step() -> None:
    assert growth_of_process(in_use(50, 100, 150, 900)) == 25
    assert growth_of_process(in_use(50, 100, 12, steps=[0, 5, 10, 12])) == 10


@pytest.mark.parametrize("position", range(4))
def test_a_buffer_that_is_allocated_once_is_no_growth(position: int) -> None:
    increments = [0] * 4
    increments[position] = 1 << 30
    assert growth_of_process(in_use(*increments)) == 0


def test_memory_that_shrinks_has_a_negative_growth() -> None:
    assert growth_of_process(in_use(-5000, -5000, -5000, -5000)) == -1000


def test_the_growth_is_the_mean_over_processes_with_a_t_interval() -> None:
    memory = grown(1000, 2000, 6000)
    assert memory.growth_bytes_per_step == 3000
    assert memory.growth_ci95 == student_interval([1000, 2000, 6000])


def test_one_process_has_no_interval_and_processes_without_readings_are_left_out() -> None:
    memory = add_growth(Memory(peak_rss_bytes=7), [[], [in_use(LEAK, LEAK, LEAK, LEAK)], [MemoryInUse([0], [5])]])
    assert memory == Memory(peak_rss_bytes=7, growth_bytes_per_step=LEAK / 5)


def test_a_log_without_readings_has_no_growth() -> None:
    assert add_growth(Memory(peak_rss_bytes=7), [[], []]) == Memory(peak_rss_bytes=7)


@pytest.mark.parametrize(
    ("processes", "is_named"),
    [
        ((LEAK, LEAK), True),
        ((LEAK, LEAK + 100, LEAK - 200), True),
        ((LEAK,), False),
        ((NOTABLE_GROWTH, NOTABLE_GROWTH), False),
        ((NOTABLE_GROWTH + 1, NOTABLE_GROWTH + 1), True),
        ((0, LEAK, 0, 0, 0), False),
        ((3000, 3100, 2900), False),
        ((-LEAK, -LEAK), False),
    ],
    ids=["two", "three", "one process", "as much as caches", "above", "one of five", "caches", "shrinks"],
)
def test_a_leak_is_named_if_its_whole_interval_is_above_what_caches_grow_by(
    processes: tuple[float, ...], is_named: bool
) -> None:
    assert bool([*growth_warnings(grown(*processes))]) == is_named


def test_the_warning_has_the_growth_with_its_interval() -> None:
    (warning,) = growth_warnings(grown(LEAK, LEAK + 512, LEAK - 512))
    assert warning == (
        "memory grows by 97.7 KiB (96.4 KiB to 98.9 KiB) with every step: something retains what each step creates,"
        " such as a loss with its graph"
    )


def named(document: StudyDocument) -> list[str]:
    return [one.configuration for one in document.results if any("memory grows" in text for text in one.warnings)]


def test_a_simulated_leak_is_a_column_and_a_note_and_a_cache_is_not() -> None:
    scripts = {"torch": Script(leak=LEAK), "tf": Script(leak=0, cache=1 << 30), "jax": Script(leak=0), "flux": Script()}
    document = Machine(seed=1).measure(scripts, processes=5, budget=20.0)
    assert named(document) == ["torch/cpu"]
    growths = {one.engine: one.memory.growth_bytes_per_step for one in document.results}
    assert growths == {"torch": LEAK, "tf": 0, "jax": 0, "flux": None}
    table = render(document, columns=select_metrics(["memory_growth"]), notes=True)
    assert "97.7 KiB (97.7 KiB to 97.7 KiB)" in table
    assert "memory growth per step" not in render(document, notes=True)
    assert "memory grows by 97.7 KiB" in table


def test_a_quick_study_shows_the_growth_and_names_nothing() -> None:
    document = Machine(seed=1).measure({"torch": Script(leak=LEAK)}, processes=1, budget=5.0)
    assert named(document) == []
    assert (document.results[0].memory.growth_bytes_per_step, document.results[0].memory.growth_ci95) == (LEAK, None)


def test_readings_of_a_process_run_that_did_not_end_do_not_count() -> None:
    run = run_of("torch")
    for size in (100, 200, 300):
        run.start_process_run()
        run.apply(MemoryMeasured(configuration="torch/cpu", in_use=MemoryInUse([0], [size])))
    run.drop_process_runs(2)
    run.start_process_run()
    run.apply(MemoryMeasured(configuration="torch/cpu", in_use=MemoryInUse([0], [400])))
    assert run.memory_in_use == [[MemoryInUse([0], [size])] for size in (100, 200, 400)]


@pytest.mark.parametrize("processes", [2, 3, 5, 7])
def test_caches_that_still_grow_are_named_in_none_of_a_thousand_studies(processes: int) -> None:
    """Caches as measured in clean engines, and twice as large: growth that halves from reading to reading."""
    rng = np.random.default_rng(processes)
    false_alarms = 0
    for _ in range(1000):
        starts = rng.lognormal(np.log(2 * 22_000), 0.3, processes)
        noise = rng.normal(0, 5_000, (processes, 4))
        increments = starts[:, None] * 0.5 ** np.arange(4) + noise
        memory = add_growth(Memory(), [[in_use(*map(round, one))] for one in increments.tolist()])
        false_alarms += len([*growth_warnings(memory)])
    assert false_alarms == 0


@pytest.mark.parametrize("processes", [3, 5, 7])
def test_a_leak_among_caches_that_still_grow_is_named_in_a_thousand_studies(processes: int) -> None:
    rng = np.random.default_rng(processes)
    found = 0
    for _ in range(1000):
        noise = rng.normal(0, 50_000, (processes, 4))  # the readings of a step are uncertain by half a leak
        memory = add_growth(Memory(), [[in_use(*map(round, one))] for one in (5 * LEAK + noise).tolist()])
        found += len([*growth_warnings(memory)])
    assert found == 1000


def test_readings_whose_steps_do_not_increase_are_refused() -> None:
    for steps, sizes in (([0, 5, 5], [1, 2, 3]), ([5, 0], [1, 2]), ([0, 5], [1])):
        with pytest.raises(ValueError, match="memory in use"):
            MemoryInUse(steps, sizes)
