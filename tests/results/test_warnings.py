"""Tests of the warnings about a finished study."""

from __future__ import annotations

from polybench.results.sweep import sweep_warnings
from polybench.results.warnings import final_warnings
from polybench.schema.metadata import RoundInterference
from polybench.schema.options import Study
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import BaselineComparison
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
    assert text.startswith("margin of error above ±5 %: flux/cpu ±10.0%; try --processes 10")
    assert not list(final_warnings(document, Study(margin=0.11), cut_short=False))
    assert not list(final_warnings(document, Study(processes=1), cut_short=False))


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
    assert text == "CPU contention: 1 of 1 timing blocks is affected; close busy programs or try --wait-idle 30s"


def test_swapping_is_reported() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.interference.append(RoundInterference(0, 1, 0.1, 1.0, 0.0, 4096, True))
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text.startswith("the machine swapped memory in 1 of 2 rounds")


def test_warnings_of_a_sweep_name_their_points() -> None:
    one, two = study(), study()
    one.warnings = ["the data is not official", "CPU contention"]
    two.warnings = ["the data is not official"]
    points = [({"batch_size": 1, "threads": 2}, one), ({"batch_size": 8, "threads": 2}, two)]
    assert sweep_warnings(points) == [
        "the data is not official", "batch size 1, threads 2: CPU contention",
    ]  # fmt: skip
