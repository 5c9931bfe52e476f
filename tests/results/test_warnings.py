"""Tests of the warnings about a finished study."""

from __future__ import annotations

import pytest

from polybench.results.warnings import final_warnings, shared_warnings
from polybench.schema.metadata import RoundInterference
from polybench.schema.options import Study
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import BaselineComparison, StepTimes
from tests.factories import measured, study


def comparison(low: float, high: float) -> BaselineComparison:
    return BaselineComparison("torch/cpu", 2.0, (low, high), "processes")


def test_missed_margin_names_the_configurations_and_their_margins() -> None:
    document = study(
        measured("torch/cpu", 0.0165, vs_baseline=BaselineComparison("torch/cpu", 1.0, None, "single_process")),
        measured("tf/cpu", 0.01, vs_baseline=comparison(1.92, 2.08)),  # 4 %
        measured("flux/cpu", 0.01, vs_baseline=comparison(1.8, 2.2)),  # 10 %
        measured("flux/cuda", 0.01, vs_baseline=None),
    )
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text.startswith("margin of error of speedups above ±5%: flux/cpu over torch/cpu ±10%; try --processes 10")
    assert not list(final_warnings(document, Study(margin=0.11), cut_short=False))
    assert not list(final_warnings(document, Study(processes=1), cut_short=False))


def test_a_budget_that_quick_limits_needs_a_study_without_it() -> None:
    document = study(measured("torch/cpu", 0.0165))
    for settings, fix in ((Study(budget=5.0), "try a larger --budget"), (Study().quick(), "--budget, without --quick")):
        (text,) = final_warnings(document, settings, cut_short=True)
        assert text.endswith(fix)


def test_affected_blocks_are_reported_with_busy_programs_and_a_fix() -> None:
    clean, affected = BlockCounters(1.0, 2.0, 0.0, 0.0, reruns=1), BlockCounters(1.0, 2.0, 0.9, 0.0)
    blocks = [[clean, clean], [affected, clean]]
    interference = Interference(blocks_rerun=3, blocks_affected=1, blocks=blocks)
    document = study(measured("torch/cpu", 0.0165, interference=interference))
    document.host.busiest_programs, document.host.idle_wait_seconds = ["firefox"], 12.3
    assert list(final_warnings(document, Study(wait_idle=30.0), cut_short=False)) == [
        "CPU contention: 3 of 4 timing blocks were re-measured; 1 is still affected; busiest programs:"
        " firefox; close busy programs or try --wait-idle 60s",
        "waited 12 s for an idle machine",
    ]


def test_affected_blocks_are_reported_when_none_was_re_measured() -> None:
    affected = BlockCounters(1.0, 2.0, 0.9, 0.0)
    document = study(measured("torch/cpu", 0.0165, interference=Interference(blocks_affected=1, blocks=[[affected]])))
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text == "CPU contention: 1 of 1 timing blocks is affected; close busy programs or try --wait-idle 60s"


def test_cores_that_the_hypervisor_took_are_not_blamed_on_programs() -> None:
    taken = BlockCounters(1.0, 2.0, 0.3, 0.8, affected=True, reruns=1)
    interference = Interference(
        blocks_rerun=1, blocks_affected=1, blocks=[[taken], [BlockCounters(1.0, 2.0, 5.0, 0.0)]]
    )
    document = study(measured("torch/cpu", 0.0165, interference=interference))
    document.settings.threads, document.host.threads, document.host.busiest_programs = 2, 2, ["firefox"]
    assert list(final_warnings(document, Study(wait_idle=40.0), cut_short=False)) == [
        "CPU contention: 1 of 2 timing blocks was re-measured; 1 is still affected; the hypervisor gave the cores to"
        " other machines; measure when the host is idle or try --wait-idle 80s",
        "more runnable threads than cores: torch/cpu beside other machines; OpenMP's threads spin while they wait for"
        " each other, so that steps can take 30 times as long; try --wait-idle 80s or fewer --threads",
    ]
    assert shared_warnings([("batch size 1", document)], "point") == [
        "CPU contention in 1 of 1 points: 1 of 2 timing blocks was re-measured; 1 is still affected; the hypervisor"
        " gave the cores to other machines; measure when the host is idle or try --wait-idle 60s",
        "more runnable threads than cores: torch/cpu beside other machines; OpenMP's threads spin while they wait for"
        " each other, so that steps can take 30 times as long; try --wait-idle 60s or fewer --threads",
    ]


@pytest.mark.parametrize(
    ("configuration", "threads", "others", "spins"),
    [
        ("torch/cpu", 2, 0.9, True),
        ("keras+torch/cpu", 2, 0.9, True),
        ("torch/cpu", 1, 2.0, False),  # a single thread waits for no other
        ("torch/cpu", 2, 0.0, False),  # the hypervisor interfered
        ("tf/cpu", 2, 0.9, False),
    ],
)
def test_spinning_threads_beside_other_programs_are_reported(
    configuration: str, threads: int, others: float, spins: bool
) -> None:
    affected = BlockCounters(1.0, 2.0, others, 0.0, affected=True)
    interference = Interference(blocks_affected=1, blocks=[[affected]])
    document = study(measured(configuration, 0.5, interference=interference))
    document.settings.threads, document.host.threads, document.host.busiest_programs = threads, 2, ["make"]
    _, *warnings = final_warnings(document, Study(), cut_short=False)
    expected = (
        f"more runnable threads than cores: {configuration} beside make; OpenMP's threads spin while they wait for"
        " each other, so that steps can take 30 times as long; try --wait-idle 60s or fewer --threads"
    )
    assert warnings == [expected] * spins


def test_swapping_is_reported() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.interference.append(RoundInterference(0, 1, 0.1, 1.0, 0.0, 4096, True))
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text.startswith("the machine swapped memory in 1 of 2 rounds")


def test_warnings_of_a_sweep_name_their_points() -> None:
    one, two = study(), study()
    one.warnings = ["the data is not official", "the budget ended"]
    two.warnings = ["the data is not official"]
    assert shared_warnings([("batch size 1", one), ("batch size 8", two)], "point") == [
        "the data is not official", "batch size 1: the budget ended",
    ]  # fmt: skip


def test_contention_and_margins_of_a_sweep_are_one_warning_each() -> None:
    clean, affected = BlockCounters(1.0, 2.0, 0.0, 0.0, reruns=1), BlockCounters(1.0, 2.0, 0.9, 0.0)
    studies = []
    for number, width in enumerate((0.02, 0.2, 0.3, 5.0, 0.4, 0.5)):
        interference = Interference(blocks_rerun=1, blocks_affected=1, blocks=[[clean, affected]]) if number else None
        margin = comparison(2.0 - width, 2.0 + width)
        document = study(
            measured("tf/cpu", 0.0165, vs_baseline=margin, interference=interference or Interference(blocks=[[clean]]))
        )
        document.host.busiest_programs, document.host.idle_wait_seconds = [f"program {number % 2}"], 2.0
        full = ["the disk is full"] if number else []
        document.warnings = [*final_warnings(document, Study(), cut_short=False), *full]
        studies.append((f"batch size {number}", document))
    assert shared_warnings(studies, "point") == [
        "5 of 6 points: the disk is full",
        "CPU contention in 5 of 6 points: 5 of 11 timing blocks were re-measured; 5 are still affected;"
        " busiest programs: program 1, program 0; close busy programs or try --wait-idle 60s",
        "waited 12 s for an idle machine",
        "margin of error of speedups above ±5% in 5 of 6 points: the widest are"
        " tf/cpu over torch/cpu ±>100% at batch size 3, tf/cpu over torch/cpu ±25% at batch size 5,"
        " tf/cpu over torch/cpu ±20% at batch size 4, tf/cpu over torch/cpu ±15% at batch size 2;"
        " try --processes 10 or an idle machine",
    ]


@pytest.mark.parametrize(("slower", "warns"), [(1.0, False), (1.3, True)])
def test_a_machine_that_throttles_between_processes_has_a_warning(slower: float, warns: bool) -> None:
    noise = ((0.99, 1.01, 1.0, 0.98, 1.02), (1.01, 0.99, 1.02, 1.0, 0.98), (1.0, 1.02, 0.98, 0.99, 1.01))
    results = []
    for number, factors in enumerate(noise):
        seconds = [[[0.02 * factor * (slower if index > 2 else 1.0)] * 3] for index, factor in enumerate(factors)]
        results.append(measured(f"tf/cpu#{number}", 0.02, step_times=StepTimes("step", 1, seconds), vs_baseline=None))
    texts = [one for one in final_warnings(study(*results), Study(), cut_short=False) if "first process run" in one]
    assert bool(texts) == warns
    assert all("slower from the first process run to the last" in one for one in texts)
