from __future__ import annotations

from typing import Literal

import msgspec

from polybench.core.document.identity import Parity
from polybench.core.document.resources import Allocation, Allocations, Energy, GarbageCollection, Roof
from polybench.core.document.result import Result
from polybench.core.document.times import BlockMeans, Pipeline
from polybench.export.footnotes import footnotes
from tests.factories import FLUX_DEVIATIONS, absent, measured, native, study, trainings, typical_study


def test_order_and_words() -> None:
    assert footnotes(typical_study(), []) == [
        "intervals: 95%, over fresh processes",
        "tf+keras_fit/cpu: parity check failed: loss 3.1e-2 from the reference",
        "flux: max-pool gradient goes to the first value within 3.5e-4 of the maximum (NNlib); "
        "conv1.weight 8.8e-3 from exact",
        "1 of 6 rounds was disturbed by other processes",
        "tf/cpu: steps became 4.1% slower over the rounds",
    ]


def test_a_deviation_is_told_once_an_engine() -> None:
    cells = [
        measured(f"flux/{device}", 0.02, parity=Parity("pass", deviations=FLUX_DEVIATIONS)) for device in "ab"
    ]
    assert sum(note.startswith("flux:") for note in footnotes(study(*cells), [])) == 1


def test_one_run_is_labelled() -> None:
    (note,) = footnotes(study(measured("torch/cpu", 0.0165, processes=1)), [])
    assert "within one run" in note
    assert "no verdict" in note


def test_the_versions_of_environments_are_told_where_they_differ() -> None:
    def ran(cell: str, **versions: object) -> Result:
        return measured(cell, 0.01, versions={"keras": "3", **versions, "build": {}, "environment": {}})

    notes = footnotes(
        study(
            ran("torch/cpu", torch="2.13"),
            ran("torch@old/cpu", torch="2.12", python="3.12.1"),
            ran("torch+compile@old/cpu", torch="2.12", python="3.12.1"),
            ran("torch@copy/cpu", torch="2.13", python="3.11.7"),
            ran("tf@new/cpu", tf="2.22", python="3.11.7"),
            ran("jax/cpu", jax="0.7"),
            ran("jax@copy/cpu", jax="0.7", python="3.11.7"),
            absent("flux@none/cpu", "unavailable", "no", environment="none", versions={"environment": {}}),
        ),
        [],
    )
    assert notes[1:] == [
        "torch: python 3.11.7, torch 2.13",
        "torch@old: python 3.12.1, torch 2.12",
        "torch@copy: python 3.11.7, torch 2.13",
        "tf@new: python 3.11.7, keras 3, tf 2.22",
        "jax: the same versions as elsewhere",
        "jax@copy: the same versions as elsewhere",
    ]


def test_a_cell_that_was_cut_short_is_told() -> None:
    notes = footnotes(study(measured("torch/cpu", 0.0165, status="interrupted", reason="Ctrl-C")), [])
    assert "torch/cpu: interrupted: Ctrl-C" in notes


def test_nothing_measured_needs_no_intervals() -> None:
    assert footnotes(study(absent("tf/cpu", "failed", "crashed")), []) == []


def test_what_percentages_are_of_is_said_once_where_they_are_shown() -> None:
    roof = Roof(98.1e9, 0.3, "2048x2048x2048 in torch")
    cells = [measured(f"{name}/cpu", 0.01, roof=roof) for name in ("torch", "tf")]
    (note,) = (note for note in footnotes(study(*cells), ["roof"]) if note.startswith("roof"))
    assert "98.1 GFLOP/s, the fastest product that was seen here (2048x2048x2048 in torch)" in note
    assert "Winograd's algorithm may pass 100%" in note
    assert not any(note.startswith("roof") for note in footnotes(study(*cells), ["step_time"]))


def test_sources_of_allocations_and_energy_are_named_once() -> None:
    heap = Allocations(Allocation(1, 2, "Base.gc_num()", "Julia's heap"))
    both = Allocations(Allocation(1, 2, "profiler", "tensors"), Allocation(1, 2, "memory_stats", "requests"))
    document = study(
        measured("flux/cpu", 0.03, allocations=heap),
        measured("flux+default_threads/cpu", 0.03, allocations=heap),
        measured("torch/cuda", 0.01, allocations=both, energy=Energy(1, "NVML, GPU only")),
    )
    notes = footnotes(document, ["allocated", "device_allocations", "energy"])
    assert "flux, flux+default_threads: allocations are from Base.gc_num(): Julia's heap" in notes
    assert "torch: allocations are from profiler: tensors" in notes
    assert "torch: device allocations are from memory_stats: requests" in notes
    assert "cuda: energy is from NVML, GPU only" in notes
    assert not any(" from " in note for note in footnotes(document, ["step_time"]))
    assert not any("device" in note or "energy" in note for note in footnotes(document, ["allocated"]))


def test_what_may_be_divided_is_told_where_it_is_shown() -> None:
    document = study(
        measured("torch/cpu", 0.02, allocations=Allocations(native=native(1))),
        measured("flux/cpu", 0.03, allocations=Allocations(native=native(1))),
        measured("tf/cpu", 0.01, allocations=Allocations(native=native(1, covers="all; not the pool"))),
    )
    *_, same, other, alike = footnotes(document, ["step_time", "native_peak"])
    assert same == "torch, flux: native allocations are counted by memray: all"
    assert other == "tf: native allocations are counted by memray: all; not the pool"
    assert "they may be divided" in alike
    assert not any("native" in note for note in footnotes(document, ["allocated"]))
    none = study(measured("torch/cpu", 0.02))
    assert not any("native" in note for note in footnotes(none, ["native_peak"]))


def test_a_pipeline_that_keeps_up_is_told_with_both_rates() -> None:
    pipeline = Pipeline(0.001, 0.009, 25_000.0, 14_000.0)
    notes = footnotes(study(measured("torch/cpu", 0.01, pipeline=pipeline)), [])
    assert (
        "torch/cpu: 12,800 images/s; its pipeline alone 25,000, training alone 14,000: 91% of the smaller"
        in notes
    )
    untold = footnotes(study(measured("torch/cpu", 0.01, pipeline=Pipeline(0.001, 0.009))), [])
    assert not any("alone" in note for note in untold)


def test_pauses_that_the_medians_leave_out_are_told() -> None:
    def told(collector: float, mean: float, cell: str = "flux/cpu") -> list[str]:
        means = BlockMeans(mean, None, 128 / mean, 390 * mean, 0.75, (0.7, 0.8))
        row = measured(cell, 0.02, gc=GarbageCollection(collector, 1), block_means=means)
        return [note for note in footnotes(study(row), []) if "collector" in note]

    assert told(0.001, 0.022) == [
        "flux/cpu: the garbage collector takes 1.00 ms of a mean step (22.0 ms), in pauses that few steps"
        " meet and medians leave out; the speedup by means is 0.75 (0.70 to 0.80)"
    ]
    assert told(0.001, 0.0201) == []  # every step met one: the median has them
    assert told(0.0001, 0.022) == []  # it was something else
    assert told(0.001, 0.022, "torch/cpu")[0].endswith("medians leave out")  # the baseline itself


def test_a_training_that_was_not_finished_is_no_seed_of_an_accuracy() -> None:
    first, second, last = trainings(0.5, 0.6, 0.1)
    begun = [first, second, msgspec.structs.replace(last, epochs=last.epochs[:1], complete=False)]
    document = study(measured("torch/cpu", 0.0165, trainings=begun))
    notes = footnotes(document, ["accuracy"])
    assert "trained for 2 epochs at most, from 2 seeds; accuracy ± its standard deviation over them" in notes
    assert "torch/cpu: 1 training not finished, and not in its accuracy" in notes
    assert not any("training" in note for note in footnotes(document, ["step_time"]))


def test_a_check_of_an_earlier_study_is_dated() -> None:
    def checked(cell: str, when: str, status: Literal["pass", "fail"] = "pass") -> Result:
        return measured(cell, 0.01, parity=Parity(status, checked=when))

    earlier, own = "2024-12-31T23:58:59+00:00", "2025-01-01T00:00:09+00:00"
    notes = footnotes(
        study(checked("torch/cpu", earlier), checked("tf/cpu", earlier), checked("flux/cpu", own)), []
    )
    assert notes[1:] == [
        "torch/cpu, tf/cpu: identity checked 2024-12-31 23:58 UTC, before this study; --recheck repeats it"
    ]
