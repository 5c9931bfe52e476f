"""Tests that recommendations are significant improvements."""

from __future__ import annotations

import pytest

from polybench.analysis.recommendations import find_recommendations
from polybench.schema.analyses import StudySpread
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import BlockCounters, Interference
from tests.factories import measured, saved_again, study

TF = measured("tf/cpu", 0.020)
NO_SPREAD = StudySpread(0.0, 9, 9)
BLOCK = BlockCounters(
    wall_seconds=1.0, cpu_seconds=1.0, other_process_cpu_seconds=0.5, steal_seconds=0.0, affected=True
)


def test_faster_variants_of_the_engine_on_the_same_device_are_recommended() -> None:
    document = study(
        TF,
        measured("tf+eager/cpu", 0.030),
        measured("tf+xla/cpu", 0.012),
        measured("tf+keras_fit/cpu", 0.018),
        measured("tf+jemalloc/cpu", 0.001, parity=ParityCheck("fail")),
        measured("torch/cpu", 0.005),
        measured("tf/cuda", 0.002),
    )
    found = list(find_recommendations(document, TF, [], NO_SPREAD))
    assert [one.text for one in found] == [
        "tf/cpu as tf+xla/cpu: 8.00 ms less per step, 12.0 ms instead of 20.0 ms.",
        "tf/cpu as tf+keras_fit/cpu: 2.00 ms less per step, 18.0 ms instead of 20.0 ms.",
    ]
    assert found[0].seconds == pytest.approx(0.008, rel=1e-3)


def test_uncertain_improvements_are_not_recommended() -> None:
    single_process = measured("tf/cpu", 0.020, processes=1)
    document = study(single_process, measured("tf+xla/cpu", 0.010, processes=1))
    assert not list(find_recommendations(document, single_process, [], NO_SPREAD))
    affected = measured("tf+xla/cpu", 0.010, interference=Interference(blocks=[[BLOCK]], blocks_affected=1))
    assert not list(find_recommendations(study(TF, affected), TF, [], NO_SPREAD))


def test_threads_batch_size_and_malloc_of_other_studies_are_recommended() -> None:
    def faster(seconds: float, id: str, **changes: object) -> object:
        return saved_again(study(measured("tf/cpu", seconds)), id, **changes)

    others = [
        faster(0.010, "threads-4", threads=4),
        faster(0.015, "threads-3", threads=3),
        faster(0.040, "threads-1", threads=1),
        faster(0.060, "batch-512", batch_size=512),
        faster(0.019, "batch-64", batch_size=64),
        faster(0.018, "system", malloc="system"),
    ]
    found = find_recommendations(study(TF), TF, others, NO_SPREAD)  # type: ignore[arg-type]
    assert [(one.text, one.evidence) for one in found] == [
        (
            "tf/cpu with batch size 512: 5.00 ms less for 128 images, 15.0 ms instead of 20.0 ms,"
            " measured in another study.",
            "step_time of study batch-512",
        ),
        (
            "tf/cpu with 4 threads: 10.0 ms less per step, 10.0 ms instead of 20.0 ms, measured in another study.",
            "step_time of study threads-4",
        ),
        (
            "tf/cpu with --malloc system: 2.00 ms less per step, 18.0 ms instead of 20.0 ms,"
            " measured in another study.",
            "step_time of study system",
        ),
    ]
