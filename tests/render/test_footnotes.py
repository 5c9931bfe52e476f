"""Texts below the table of a study."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from polybench.render.footnotes import footnotes, key_notes
from polybench.schema.parity import KnownDeviation, ParityCheck
from polybench.schema.resources import Allocation, Allocations, Energy, GarbageCollection, PeakComparison
from polybench.schema.result import Pipeline, Result, StepTimes, TimeToAccuracy
from polybench.stats.statistics import summarize_step_times
from tests.factories import FLUX_DEVIATIONS, measured, native_allocation, study, trainings, typical_study, unmeasured

BRACKETS = "Brackets: 95% intervals over 3 runs, each in a fresh process, of this study."


def test_notes_have_a_fixed_order() -> None:
    assert footnotes(typical_study(), []) == [
        BRACKETS,
        "tf+keras_fit/cpu: parity check failed: loss 3.1e-2 from the reference",
        "flux: known deviation: max-pool gradient goes to the first value within 3.5e-4 of the maximum (NNlib); "
        "largest error 8.8e-3, in conv1.weight",
        "CPU contention: 1 of 6 timing blocks was re-measured",
        "tf/cpu: steps became 4.1% slower over the rounds",
    ]


def test_known_deviation_is_listed_once_per_engine() -> None:
    configurations = [
        measured(f"flux/{device}", 0.02, parity=ParityCheck("pass", known_deviations=FLUX_DEVIATIONS))
        for device in "ab"
    ]
    assert sum(note.startswith("flux:") for note in footnotes(study(*configurations), [])) == 1


def test_differing_versions_of_environments_are_listed() -> None:
    def result(configuration: str, **versions: object) -> Result:
        return measured(configuration, 0.01, versions={"keras": "3", **versions, "build": {}, "environment": {}})

    notes = footnotes(
        study(
            result("torch/cpu", torch="2.13"),
            result("torch@old/cpu", torch="2.12", python="3.12.1"),
            result("torch+compile@old/cpu", torch="2.12", python="3.12.1"),
            result("torch@copy/cpu", torch="2.13", python="3.11.7"),
            result("tf@new/cpu", tf="2.22", python="3.11.7"),
            result("jax/cpu", jax="0.7"),
            result("jax@copy/cpu", jax="0.7", python="3.11.7"),
            unmeasured(
                "flux@none/cpu", "unavailable", "no", environment="none", versions={"environment": {}, "inherited": {}}
            ),
        ),
        [],
    )
    assert notes[1:] == [
        "torch: python 3.11.7, torch 2.13",
        "torch@old: python 3.12.1, torch 2.12",
        "torch@copy: python 3.11.7, torch 2.13",
        "tf@new: python 3.11.7, keras 3, tf 2.22",
        "jax: same versions as the other environments",
        "jax@copy: same versions as the other environments",
    ]


def test_interrupted_configuration_has_a_note() -> None:
    notes = footnotes(study(measured("torch/cpu", 0.0165, status="interrupted", reason="Ctrl-C")), [])
    assert "torch/cpu: interrupted: Ctrl-C" in notes


def test_study_without_measurements_has_no_interval_note() -> None:
    assert footnotes(study(unmeasured("tf/cpu", "failed", "crashed")), []) == []


def test_peak_note_appears_once_with_its_column() -> None:
    peak = PeakComparison(98.1e9, 0.3, "2048x2048x2048 in torch")
    configurations = [measured(f"{name}/cpu", 0.01, peak=peak) for name in ("torch", "tf")]
    (note,) = (note for note in footnotes(study(*configurations), ["pct_of_peak"]) if note.startswith("peak"))
    assert "98.1 GFLOP/s, fastest matrix product on this machine (2048x2048x2048 in torch)" in note
    assert "Winograd's algorithm can exceed 100%" in note
    assert not any(note.startswith("peak") for note in footnotes(study(*configurations), ["step_time"]))


def test_sources_of_allocations_and_energy_are_listed_once() -> None:
    heap = Allocations(Allocation(1, 2, "Base.gc_num()", "Julia's heap"))
    both = Allocations(Allocation(1, 2, "profiler", "tensors"), Allocation(1, 2, "memory_stats", "requests"))
    document = study(
        measured("flux/cpu", 0.03, allocations=heap),
        measured("flux+framework_threads/cpu", 0.03, allocations=heap),
        measured("torch/cuda", 0.01, allocations=both, energy=Energy(1, "NVML, GPU only")),
    )
    notes = footnotes(document, ["alloc_bytes_per_step", "device_allocs_per_step", "energy"])
    assert "flux, flux+framework_threads: allocations from Base.gc_num(); coverage: Julia's heap" in notes
    assert "torch: allocations from profiler; coverage: tensors" in notes
    assert "torch: device allocations from memory_stats; coverage: requests" in notes
    assert "cuda: energy from NVML, GPU only" in notes
    assert not any(" from " in note for note in footnotes(document, ["step_time"]))
    assert not any("device" in note or "energy" in note for note in footnotes(document, ["alloc_bytes_per_step"]))


def test_native_allocation_notes_appear_with_their_columns() -> None:
    document = study(
        measured("torch/cpu", 0.02, allocations=Allocations(native=native_allocation(1))),
        measured("flux/cpu", 0.03, allocations=Allocations(native=native_allocation(1))),
        measured("tf/cpu", 0.01, allocations=Allocations(native=native_allocation(1, coverage="all; not the pool"))),
    )
    *_, complete, partial, comparable = footnotes(document, ["step_time", "native_peak_live"])
    assert complete == "torch, flux: native allocations from memray; coverage: all"
    assert partial == "tf: native allocations from memray; coverage: all; not the pool"
    assert comparable == "native allocations: counted alike in all engines; in brackets, the ratio to the baseline"
    assert not any("native" in note for note in footnotes(document, ["alloc_bytes_per_step"]))
    none = study(measured("torch/cpu", 0.02))
    assert not any("native" in note for note in footnotes(none, ["native_peak_live"]))


def test_pipeline_throughput_is_compared_with_its_stages() -> None:
    pipeline = Pipeline(0.001, 0.009, 25_000.0, 14_000.0)
    notes = footnotes(study(measured("torch/cpu", 0.01, pipeline=pipeline)), [])
    assert (
        "torch/cpu: 12,800 images/s, 91% of the rate of its slower stage (input pipeline 25,000, training 14,000)"
        in notes
    )
    unknown_rates = footnotes(study(measured("torch/cpu", 0.01, pipeline=Pipeline(0.001, 0.009))), [])
    assert not any("alone" in note for note in unknown_rates)


def test_few_full_collections_are_noted() -> None:
    def notes(collections: int | None) -> list[str]:
        times = [[[0.01] * 400, [0.01] * 500]]
        fields = {"step_times": StepTimes("step", 1, times), "step_time": summarize_step_times(times, "step")}
        document = study(measured("flux/cpu", 0.01, gc=GarbageCollection(0.001, collections), **fields))
        return [note for note in footnotes(document, []) if "collection" in note]

    assert notes(0) == [
        "flux/cpu: 0 full garbage collections in 900 timed steps; pauses rarer than one in 900 are not in the mean step"
    ]
    assert "flux/cpu: 1 full garbage collection in 900 timed steps" in notes(1)[0]
    assert notes(4) != []
    assert notes(5) == notes(None) == []


def test_accuracy_excludes_unfinished_trainings() -> None:
    first, second, last = trainings(0.5, 0.6, 0.1)
    with_unfinished = [first, second, msgspec.structs.replace(last, epochs=last.epochs[:1], complete=False)]
    document = study(measured("torch/cpu", 0.0165, trainings=with_unfinished))
    notes = footnotes(document, ["accuracy"])
    assert (
        "accuracy and test loss: mean ± standard deviation over 2 seeds of the initial weights, after at most 2 epochs;"
        " every epoch has the same batches in the same order"
    ) in notes
    assert "torch/cpu: accuracy and test loss exclude 1 unfinished training" in notes
    assert not any("training" in note for note in footnotes(document, ["step_time"]))


@pytest.mark.parametrize(("reached", "is_noted"), [(1, True), (2, True), (3, False)])
def test_seeds_that_missed_the_target_are_noted(reached: int, is_noted: bool) -> None:
    goal = TimeToAccuracy(0.7, None, reached, 3)
    document = study(measured("torch/cpu", 0.0165, trainings=trainings(0.5, 0.6, 0.8), time_to_accuracy=goal))
    note = f"torch/cpu: {reached} of 3 seeds reached accuracy 0.7"
    assert (note in footnotes(document, ["time_to_accuracy"])) == is_noted


def test_reused_parity_check_is_dated() -> None:
    def checked(configuration: str, when: str, status: Literal["pass", "fail"] = "pass") -> Result:
        return measured(configuration, 0.01, parity=ParityCheck(status, checked_at=when))

    earlier, own = "2024-12-31T23:58:59+00:00", "2025-01-01T00:00:09+00:00"
    notes = footnotes(study(checked("torch/cpu", earlier), checked("tf/cpu", earlier), checked("flux/cpu", own)), [])
    assert notes[1:] == ["torch/cpu, tf/cpu: reused the parity check of 2024-12-31 23:58 UTC; repeat it with --recheck"]


COLLECTING = StepTimes("step", 1, [[[0.09, 0.09, 0.09, 0.4]]] * 2)


def collecting(collection: float, configuration: str = "flux/cpu") -> Result:
    """Return a row whose mean step is 167 ms, and a typical one 90 ms."""
    step_time = summarize_step_times(COLLECTING.values, "step")
    gc = GarbageCollection(collection, 9)
    return measured(configuration, 0.1, gc=gc, step_time=step_time, step_times=COLLECTING)


def test_the_collector_has_a_note_if_the_typical_step_is_without_it() -> None:
    torch = measured("torch/cpu", 0.0165)
    note = "flux collects garbage for 66.4 of 168 ms; a step without it takes 101 ms"
    assert note in footnotes(study(torch, collecting(0.0664)), [])
    assert note in key_notes(study(torch, collecting(0.0664)), [], 80).lines
    in_every_step = measured("flux/cpu", 0.1, gc=GarbageCollection(0.05, 9))
    for result in (collecting(0.001), in_every_step):
        assert not any("collects" in note for note in footnotes(study(torch, result), []))


def test_rows_refer_to_their_footnotes() -> None:
    rules = [
        KnownDeviation("max-pool gradient goes to the first value", "conv1.weight", 0.0051, "NNlib"),
        KnownDeviation("batch norm divides by n", "norm.running_variance", 0.0002, "Keras"),
    ]
    notes = key_notes(
        study(
            measured("torch/cpu", 0.0165, status="interrupted", reason="Ctrl-C"),
            measured("flux/cpu", 0.02, parity=ParityCheck("pass", known_deviations=rules)),
            measured("flux+gc_off/cpu", 0.02, parity=ParityCheck("pass", known_deviations=rules), caveat="no pauses"),
        ),
        ["parity"],
        200,
    )
    assert notes.lines == [
        BRACKETS,
        "[1] interrupted: Ctrl-C",
        "[2] max-pool gradient: conv1.weight is 0.51% off the exact rule; 1 smaller deviation",
    ]
    assert notes.marks == {"torch/cpu": "[1]", "flux/cpu": "[2]", "flux+gc_off/cpu": "[2]"}
    assert key_notes(typical_study(), ["parity"], 80).marks["tf+keras_fit/cpu"] == "[1]"
    assert key_notes(typical_study(), ["step_time"], 80).marks == {}
