"""Tests of verdicts on constructed and simulated studies."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.analysis.diff import SIGNIFICANCE_LEVEL, diff
from polybench.analysis.verdicts import meets
from polybench.render.diff import verdicts
from polybench.results import repetitions
from polybench.results.summaries import StudySummary, summarize
from polybench.schema.analyses import DiffDocument, DiffRow
from polybench.schema.metadata import UNKNOWN_HOST, ToolVersion
from polybench.schema.options import RENAME
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import BlockCounters, Interference, PeakComparison
from polybench.schema.result import Result, StepTimes
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import ASSUMED_STD
from polybench.stats.statistics import summarize_step_times
from tests.factories import WORKLOAD, measured, study, unmeasured
from tests.stats.test_interval_coverage import simulated_configuration

TORCH, TF = {"torch": "2.12.0"}, {"tensorflow": "2.21.0"}
BLOCK = BlockCounters(
    wall_seconds=1.0, cpu_seconds=1.0, other_process_cpu_seconds=0.5, steal_seconds=0.0, affected=True
)


def only_row(document: DiffDocument) -> DiffRow:
    (row,) = document.rows
    return row


def both(seconds: float, **changes: Any) -> StudyDocument:
    """Return a study of torch with this step time and of tf with 20 ms."""
    return study(
        measured("torch/cpu", seconds, **({"versions": TORCH} | changes)), measured("tf/cpu", 0.020, versions=TF)
    )


def test_change_of_one_engine_is_detected() -> None:
    found = diff(both(0.0100), both(0.0140, versions={"torch": "2.13.0"}))
    torch, tf = found.rows
    assert (torch.verdict, tf.verdict) == ("slower", "cannot tell")
    assert (torch.controls, tf.controls) == (["tf/cpu"], [])
    assert torch.ratio == pytest.approx(1 / 1.4, rel=1e-3)
    assert torch.ci95 is not None
    assert torch.ci95[1] < 1
    assert torch.changed == {"torch": ("2.12.0", "2.13.0")}
    assert found.changed == {}
    assert torch.machine_drift_ratio == 1.0
    assert found.warnings == []
    faster, _ = diff(both(0.0140), both(0.0100)).rows
    assert faster.verdict == "faster"


def test_there_is_no_difference_only_if_the_interval_lies_within_the_tolerance() -> None:
    one, two = both(0.0100), both(0.0140)
    assert diff(one, two, 0.01).rows[0].verdict == "slower"
    torch, torch_within = (diff(one, two, tolerance).rows[0] for tolerance in (0.41, 1.0))
    assert (torch.verdict, torch.reason) == ("cannot tell", "between 71% slower and 15% slower")
    assert (torch_within.verdict, torch_within.reason) == ("no difference", None)


@pytest.mark.parametrize("others", [(), ("tf/cpu",)])
def test_a_slower_engine_is_slower_or_cannot_be_told(others: tuple[str, ...]) -> None:
    one, two = (
        study(measured("torch/cpu", seconds, versions={"torch": version}), *(measured(name, 0.02) for name in others))
        for seconds, version in ((0.010, "1"), (0.012, "2"))
    )
    assert diff(one, two).rows[0].verdict in ("slower", "cannot tell")


def slow_down(document: StudyDocument, factor: float) -> StudyDocument:
    results = []
    for one in document.results:
        seconds = [[[s * factor for s in r] for r in process] for process in one.nested_step_times]
        results.append(with_step_times(one, seconds))
    return msgspec.structs.replace(document, results=results)


def with_step_times(result: Result, seconds: list[list[list[float]]]) -> Result:
    return msgspec.structs.replace(
        result, step_times=StepTimes("step", 1, seconds), step_time=summarize_step_times(seconds, "step")
    )


def test_versions_is_suggested_if_a_change_may_be_larger_than_the_tolerance() -> None:
    found = diff(both(0.0100), both(0.0103, versions={"torch": "2.13.0"}))
    assert only_row_of(found, "torch/cpu").verdict == "cannot tell"
    (text,) = [text for text in found.warnings if "polybench versions" in text]
    low, high = only_row_of(found, "torch/cpu").corrected_ci95 or (0.0, 0.0)
    assert f"changes of up to {100 * (max(high, 1 / low) - 1):.2g}% open" in text
    assert "polybench versions OLD NEW --package NAME" in text


@pytest.mark.parametrize("seconds", [0.0140, 0.0060])
def test_versions_is_not_suggested_for_a_change_that_was_found(seconds: float) -> None:
    found = diff(both(0.0100), both(seconds, versions={"torch": "2.13.0"}))
    assert not any("polybench versions" in text for text in found.warnings)


def test_versions_is_not_suggested_for_a_change_below_the_tolerance() -> None:
    found = diff(both(0.0100), both(0.0100, versions={"torch": "2.13.0"}), tolerance=0.5)
    assert not any("polybench versions" in text for text in found.warnings)


def only_row_of(document: DiffDocument, configuration: str) -> DiffRow:
    return next(row for row in document.rows if row.configuration == configuration)


def test_drift_of_a_device_is_estimated_from_its_own_configurations() -> None:
    """Slow down all engines on the CPU but none on the GPU, and vice versa."""
    cpu = [measured(f"{name}/cpu", 0.02) for name in ("torch", "tf", "flux")]
    cuda = [measured(f"{name}/cuda", 0.002) for name in ("torch", "tf")]
    slow_cpu, slow_cuda = (slow_down(study(*configurations), 1.4).results for configurations in (cpu, cuda))
    for after, device in ((study(*slow_cpu, *cuda), "cpu"), (study(*cpu, *slow_cuda), "cuda")):
        found = diff(study(*cpu, *cuda), after)
        assert {row.verdict for row in found.rows} == {"cannot tell"}
        for row in found.rows:
            assert row.machine_drift_ratio == pytest.approx(1 / 1.4 if row.device == device else 1.0)
        (text,) = found.warnings
        assert text.startswith(f"all configurations on {device} are slower by a factor of about 1.40: the machine")


@pytest.mark.parametrize("others", [[], [measured("tf/cuda", 0.002)]], ids=["no other engine", "another device"])
def test_drift_is_unknown_without_another_engine_on_the_device(others: list[Result]) -> None:
    found = diff(study(measured("torch/cpu", 0.01), *others), study(measured("torch/cpu", 0.012), *others))
    assert [row.verdict for row in found.rows] == ["slower", "cannot tell"][: 1 + len(others)]
    assert {row.machine_drift_ratio for row in found.rows} == {None}
    (text,) = found.warnings
    assert text.startswith("no other engine on cpu is unchanged between the studies")


@pytest.mark.parametrize(("name", "value"), [("cpu", "another"), ("cores", 64), ("gpus", ["NVIDIA H200"])])
def test_other_hardware_is_another_machine_whatever_its_name(name: str, value: Any) -> None:
    one, two = both(0.0100), both(0.0140)
    two.host = msgspec.structs.replace(two.host, **{name: value})
    for same_machine in (False, True):
        found = diff(one, two, same_machine=same_machine)
        assert {row.verdict for row in found.rows} == {"cannot tell"}
        assert f"different machine: {name} is " in found.warnings[0]


def test_variants_of_an_engine_do_not_show_the_drift_of_its_machine() -> None:
    rows = diff(
        *([study(*(measured(f"{name}/cpu", 0.01) for name in ("torch", "torch+compile", "tf", "jax")))] * 2)
    ).rows
    assert [row.controls for row in rows] == [
        ["tf/cpu", "jax/cpu"], ["tf/cpu", "jax/cpu"], ["torch/cpu", "torch+compile/cpu", "jax/cpu"],
        ["torch/cpu", "torch+compile/cpu", "tf/cpu"],
    ]  # fmt: skip


def test_an_engine_whose_peak_alone_changed_shows_the_drift() -> None:
    torch, one, two = (
        measured(f"{engine}/cpu", 0.01, peak=PeakComparison(peak, 0.5, "x"))
        for engine, peak in (("torch", 1e11), ("tf", 1e11), ("tf", 2e11))
    )
    row, changed = diff(study(torch, one), study(torch, two)).rows
    assert (row.controls, list(changed.changed)) == (["tf/cpu"], ["peak"])


@pytest.mark.parametrize("controls", [0, 1, 2, 4])
def test_the_interval_contains_the_own_shifts_of_the_controls(controls: int) -> None:
    """Without variation between processes, it has only the shifts of the engine and a share of those of the others."""
    steady = [[[0.01]], [[0.01]], [[0.01]]]
    engines = ("torch", "tf", "jax", "flux", "keras")[: 1 + controls]
    document = study(*(with_step_times(measured(f"{engine}/cpu", 0.01), steady) for engine in engines))
    row, *_ = diff(document, document).rows
    low, high = row.corrected_ci95 or (1.0, 1.0)
    share = 1 / controls if controls else 0.0
    assert math.log(high) == pytest.approx(1.96 * ASSUMED_STD * math.sqrt(2 * (1 + share)), rel=1e-3)
    assert low * high == pytest.approx(1.0)


def test_engine_slower_than_the_machine_drift_is_slower() -> None:
    found = diff(both(0.01), slow_down(both(0.015), 1.4))
    assert [row.verdict for row in found.rows] == ["slower", "cannot tell"]
    assert found.rows[0].machine_drift_ratio == pytest.approx(1 / 1.4)


@pytest.mark.parametrize(
    ("drifts", "verdict"), [((1.2, 1.2), "slower"), ((1.05, 1.35), "cannot tell"), ((0.75, 1.35), "cannot tell")]
)
def test_the_mean_change_of_the_other_engines_is_attributed_to_the_machine(
    drifts: tuple[float, float], verdict: str
) -> None:
    """The more they disagree, the less certain is what remains."""
    torch, tf, jax = (measured(f"{engine}/cpu", 0.01) for engine in ("torch", "tf", "jax"))
    new = msgspec.structs.replace(slow_down(study(torch), 1.5).results[0], versions={"torch": "2"})
    others = [slow_down(study(one), drift).results[0] for one, drift in zip((tf, jax), drifts, strict=True)]
    row, *_ = diff(study(torch, tf, jax), study(new, *others)).rows
    drift = (drifts[0] * drifts[1]) ** 0.5
    assert (row.verdict, row.controls) == (verdict, ["tf/cpu", "jax/cpu"])
    assert row.machine_drift_ratio == pytest.approx(1 / drift)
    assert row.corrected_ratio == pytest.approx(drift / 1.5)
    assert row.spread is not None
    assert (row.spread.std == ASSUMED_STD) == (drifts[0] == drifts[1])


def saved_studies(*shifts: float) -> list[StudySummary]:
    """Return the summaries of repetitions in which all engines were longer by these factors."""
    documents = [
        msgspec.structs.replace(slow_down(both(0.01), 1 + shift), id=f"saved-{number}")
        for number, shift in enumerate(shifts)
    ]
    return [summarize(document) for document in documents]


SHIFTS = (-0.10, -0.07, -0.04, 0.03, 0.08, 0.11)


def test_repetitions_tell_how_much_studies_of_the_machine_differ() -> None:
    """A change by a fifth is a verdict on a steady machine, but not on one that varies by a tenth."""
    one, two = study(both(0.0100).results[0]), study(both(0.0120, versions={"torch": "2.13.0"}).results[0])
    nothing, steady, unsteady = (
        only_row(diff(one, two, saved=saved)) for saved in ((), saved_studies(*[0.0] * 6), saved_studies(*SHIFTS))
    )
    assert [row.verdict for row in (nothing, steady, unsteady)] == ["slower", "slower", "cannot tell"]
    spreads = [row.spread for row in (nothing, steady, unsteady) if row.spread]
    assert [spread.repetitions for spread in spreads] == [0, 6, 6]
    assert [spread.std for spread in spreads] == pytest.approx([ASSUMED_STD, 0.0, 0.085], abs=0.01)
    assert steady.ci95 is not None
    assert nothing.ci95 is not None
    assert nothing.ci95[0] < steady.ci95[0] < steady.ci95[1] < nothing.ci95[1]
    elsewhere = msgspec.structs.replace(study(two.results[0]))
    elsewhere.host.hostname = "elsewhere"
    assert only_row(diff(elsewhere, elsewhere, saved=saved_studies(*SHIFTS))).spread == nothing.spread


def test_a_shift_that_all_engines_share_is_no_part_of_what_remains() -> None:
    one, two = both(0.0100), slow_down(both(0.0110, versions={"torch": "2.13.0"}), 1.1)
    row = diff(one, two, saved=saved_studies(*SHIFTS)).rows[0]
    assert (row.verdict, row.corrected_ratio) == ("slower", pytest.approx(1 / 1.1))
    assert row.spread is not None
    assert row.spread.std == pytest.approx(0.0, abs=1e-6)


def test_assumed_shifts_of_another_engine_do_not_hide_a_clear_change() -> None:
    """Its own shifts, which are assumed, make the interval without drift wider."""
    alone, beside = (
        diff(before, after).rows[0]
        for before, after in (
            (study(both(0.0100).results[0]), study(both(0.0120).results[0])),
            (both(0.0100), both(0.0120)),
        )
    )
    assert (alone.verdict, beside.verdict) == ("slower", "slower")
    low, high = beside.corrected_ci95 or (1.0, 1.0)
    assert low < 1 < high
    (text, *_) = [text for text in diff(both(0.0100), both(0.0120)).warnings if "drift" in text]
    assert text == "torch/cpu: the drift that the other engines show is less certain than the change itself"


@pytest.mark.parametrize(
    ("torch", "tf", "verdict"), [(1.2, 1.0, "slower"), (1.2, 1.08, "cannot tell"), (1.2, 1.2, "cannot tell")]
)
def test_the_drift_that_another_engine_shows_is_no_part_of_a_change(torch: float, tf: float, verdict: str) -> None:
    changed = measured("torch/cpu", 0.01 * torch, versions={"torch": "2.13.0"})
    row, _ = diff(both(0.01), study(changed, measured("tf/cpu", 0.02 * tf, versions=TF))).rows
    assert (row.verdict, row.corrected_ratio) == (verdict, pytest.approx(tf / torch, rel=1e-3))


def test_the_shifts_of_a_machine_are_at_least_those_of_its_engines() -> None:
    """Four engines that moved apart tell more about the machine than what is assumed of it."""
    engines = ("torch", "tf", "jax", "flux", "keras")
    before = study(*(measured(f"{engine}/cpu", 0.01) for engine in engines))
    factors = (1.25, 0.8, 1.2, 0.85, 1.18)
    after = study(*(measured(f"{engine}/cpu", 0.01 * factor) for engine, factor in zip(engines, factors, strict=True)))
    assert {row.verdict for row in diff(before, after).rows} == {"cannot tell"}


def test_two_unchanged_engines_do_not_tell_which_of_them_changed() -> None:
    found = diff(both(0.0100), both(0.0130))
    assert [row.verdict for row in found.rows] == ["slower", "cannot tell"]
    (text,) = found.warnings
    assert text.startswith("only two engines on cpu are unchanged between the studies")


@pytest.mark.parametrize(("name", "before", "after"), [("malloc", "retain", "system"), ("pinned_cpus", [], [0, 1])])
def test_change_of_a_global_setting_is_not_attributed_to_the_machine(name: str, before: object, after: object) -> None:
    one, two = both(0.01), slow_down(both(0.01), 1.4)
    setattr(two.settings, name, after)
    found = diff(one, two)
    assert {row.verdict for row in found.rows} == {"slower"}
    assert found.changed == {name: (before, after)}


def test_engines_that_change_in_opposite_directions_are_not_the_machine() -> None:
    found = diff(both(0.010), study(measured("torch/cpu", 0.014), measured("tf/cpu", 0.014)))
    assert not any(text.startswith("all configurations") for text in found.warnings)


def test_the_newest_studies_of_a_machine_tell_how_much_it_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions, "MAX_STUDIES", len(SHIFTS) + 2)  # and the two that are compared
    one, two = study(both(0.0100).results[0]), study(both(0.0120, versions={"torch": "2.13.0"}).results[0])
    steady, unsteady = saved_studies(*[0.0] * 6), saved_studies(*SHIFTS)
    for saved, std in (((*steady, *unsteady), 0.085), ((*unsteady, *steady), 0.0)):
        spread = only_row(diff(one, two, saved=saved)).spread
        assert spread is not None
        assert spread.std == pytest.approx(std, abs=0.01)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parity": ParityCheck("fail")}, "failed the parity check in B"),
        ({"parity": ParityCheck("skipped")}, "the parity check passed in A but was skipped in B"),
        ({"status": "failed", "reason": "killed"}, "failed in B: killed"),
        ({"step_time": None}, "not measured in B"),
        (
            {"step_times": StepTimes("block", 29, [[[0.01]], [[0.01]]])},
            "step times are of a step in A but of a block in B",
        ),
    ],
)
def test_results_of_different_work_have_a_reason_and_no_ratio(changes: dict[str, Any], reason: str) -> None:
    row = only_row(diff(study(measured("torch/cpu", 0.01)), study(measured("torch/cpu", 0.02, **changes))))
    assert row.verdict == "not comparable"
    assert reason in str(row.reason)
    assert (row.ratio, row.ci95) == (None, None)


@pytest.mark.parametrize(("name", "value"), [("batch_size", 64), ("model", "dlframeworks-cnn"), ("precision", "bf16"),
                                             ("threads", 1), ("input", "pipeline"), ("pass_", "forward")])  # fmt: skip
def test_different_workloads_are_not_comparable(name: str, value: Any) -> None:
    one, two = study(measured("torch/cpu", 0.01)), study(measured("torch/cpu", 0.02))
    workload = msgspec.structs.replace(two.results[0].workload, **{name: value})
    two.results[0].workload = workload
    setattr(two.settings, name, value)
    found = diff(one, two)
    assert f"different {name.strip('_').replace('_', ' ')}: " in str(only_row(found).reason)
    assert found.changed[RENAME.get(name, name)][1] == value
    assert only_row(found).ratio is None
    one.settings.data_sha256 = "f" * 64
    assert only_row(diff(one, one)).verdict == "cannot tell"
    assert only_row(diff(one, study(measured("torch/cpu", 0.02)))).reason == "different images"


def test_numbers_of_replicas_are_different_workloads() -> None:
    one, two = (
        study(measured("torch/cpu", 0.01, workload=msgspec.structs.replace(WORKLOAD, replicas=replicas)))
        for replicas in (1, 2)
    )
    assert only_row(diff(one, two)).reason == "different replicas: 1 in A, 2 in B"


def test_different_host_has_a_ratio_and_a_warning_but_no_verdict() -> None:
    one, two = both(0.01), both(0.02)
    two.host.hostname = "elsewhere"
    found = diff(one, two)
    assert {row.verdict for row in found.rows} == {"cannot tell"}
    assert found.rows[0].ratio == pytest.approx(0.5)
    assert found.warnings[0] == "cannot tell: different machine: hostname is host in A, elsewhere in B"
    assert diff(one, two, same_machine=True).rows[0].verdict == "slower"
    two.host.cores = 64
    assert diff(one, two, same_machine=True).rows[0].verdict == "cannot tell"


def test_anonymous_hosts_may_be_different_machines() -> None:
    one, two = both(0.01), both(0.02)
    two.host.hostname = UNKNOWN_HOST
    for host in ("host", UNKNOWN_HOST):
        one.host.hostname = host
        found = diff(one, two)
        assert {row.verdict for row in found.rows} == {"cannot tell"}
        assert found.warnings[0].startswith("cannot tell: an anonymous study may come from another machine")
        reason, counts = verdicts(found).notes
        assert reason == f"torch/cpu, tf/cpu: {found.warnings[0]}"
        assert counts.startswith("2 cannot tell")
        assert diff(one, two, same_machine=True).rows[0].verdict == "slower"


def test_verdict_requires_several_unaffected_processes() -> None:
    one = study(measured("torch/cpu", 0.01))
    row = only_row(diff(one, study(measured("torch/cpu", 0.02, processes=1))))
    assert row.verdict == "cannot tell"
    assert "only one process in B" in str(row.reason)
    assert row.ratio == pytest.approx(0.5, rel=0.02)
    empty = with_step_times(measured("torch/cpu", 0.02), [[[0.02]], [[]]])  # an interrupted study
    row = only_row(diff(one, study(empty)))
    assert row.verdict == "cannot tell"
    assert "only one process in B" in str(row.reason)
    interference = Interference(blocks=[[BLOCK]], blocks_affected=1)
    row = only_row(diff(one, study(measured("torch/cpu", 0.02, interference=interference))))
    assert row.reason == "interference affected 1 of 1 timing blocks of torch/cpu in B"


def test_an_interval_that_excludes_nothing_cannot_tell() -> None:
    one = study(measured("torch/cpu", 0.01))
    wild = study(with_step_times(measured("torch/cpu", 0.01), [[[0.001]], [[0.01]], [[0.1]]]))
    row = only_row(diff(one, wild))
    assert row.verdict == "cannot tell"
    assert row.reason == "between 141 times as long and 90% faster"


def test_configurations_of_only_one_study_are_named() -> None:
    found = diff(both(0.01), study(unmeasured("flux/cpu", "unavailable", "no Julia"), measured("tf/cpu", 0.02)))
    assert [(row.configuration, row.reason) for row in found.rows if row.verdict == "not comparable"] == [
        ("torch/cpu", "only in A"), ("flux/cpu", "only in B"),
    ]  # fmt: skip


def test_changes_are_listed() -> None:
    versions = TORCH | {"build": {"MKL": "2024"}, "environment": {"OMP": "2"}}
    one = both(0.01, versions=versions, peak=PeakComparison(1e11, 0.5, "x"))
    two = both(
        0.01, versions=versions | {"build": {"MKL": "2025"}, "environment": {}}, peak=PeakComparison(2e11, 0.5, "x")
    )
    two.host.os, two.polybench, two.settings.pinned_cpus = "Linux 6", ToolVersion("0.2.0", None), [0, 1]
    found = diff(one, two)
    assert found.rows[0].changed == {
        "build.MKL": ("2024", "2025"), "environment.OMP": ("2", None), "peak": (1e11, 2e11),
    }  # fmt: skip
    assert diff(two, one).rows[0].changed["peak"] == (2e11, 1e11)
    assert found.changed == {
        "pinned_cpus": ([], [0, 1]), "host.os": ("Linux", "Linux 6"), "polybench.version": ("0.1.0", "0.2.0"),
    }  # fmt: skip


def simulated(
    engines: int, rng: np.random.Generator, slowdown: float = 1.0, drift: float = 1.0, changed: int = 1
) -> StudyDocument:
    """Simulate a study of five processes. `slowdown` affects the first engines, `drift` all of them."""
    results = []
    for number in range(engines):
        seconds = 0.0165 * drift * (slowdown if number < changed else 1.0)
        step_times = simulated_configuration(rng, 5, seconds).tolist()
        versions = {"engine": str(slowdown)} if number < changed else {}
        results.append(with_step_times(measured(f"engine{number}/cpu", 0.0165, versions=versions), step_times))
    return study(*results)


@pytest.mark.parametrize("changed", [0, 3])
def test_few_verdicts_of_ten_configurations_are_false(changed: int) -> None:
    """The mean fraction of false verdicts is below the significance level.

    The tolerance is 0, because it would hide small ones.
    """
    rng = np.random.default_rng(changed)
    pairs, fractions, found = 100, [], 0
    for _ in range(pairs):
        before, after = simulated(10, rng), simulated(10, rng, slowdown=1.25, changed=changed)
        verdicts = [row.verdict for row in diff(before, after, 1e-9).rows]
        false = 10 - changed - verdicts[changed:].count("cannot tell")
        true = verdicts[:changed].count("slower")
        fractions.append(false / max(1, false + true))
        found += true
    assert fmean(fractions) <= SIGNIFICANCE_LEVEL
    assert found >= 0.9 * changed * pairs


@pytest.mark.parametrize(
    ("interval", "conditions", "met"),
    [
        ((0.92, 1.2), {"faster": 0.1}, None),  # 17 % less time is possible
        ((0.92, 1.05), {"faster": 0.1}, False),
        ((0.8, 1.05), {"slower": 0.1}, None),
        ((0.95, 1.2), {"slower": 0.1}, False),
    ],
)
def test_an_interval_decides_a_condition_unless_it_contains_such_a_change(
    interval: tuple[float, float], conditions: dict[str, float], met: bool | None
) -> None:
    assert meets("cannot tell", 1.0, interval, conditions) is met
