"""What was measured to be faster: only what is certain, by what it gains."""

from __future__ import annotations

import pytest

from polybench.core.document.identity import Parity
from polybench.core.document.resources import BlockReading, Disturbance
from polybench.report.advice import gains
from tests.factories import measured, saved, study

TF = measured("tf/cpu", 0.020)
BLOCK = BlockReading(
    wall_seconds=1.0, cpu_seconds=1.0, others_cpu_seconds=0.5, steal_seconds=0.0, disturbed=True
)


def test_faster_variants_of_the_same_engine_on_the_same_device_count() -> None:
    document = study(
        TF,
        measured("tf+eager/cpu", 0.030),
        measured("tf+xla/cpu", 0.012),
        measured("tf+keras_fit/cpu", 0.018),
        measured("tf+jemalloc/cpu", 0.001, parity=Parity("fail")),
        measured("torch/cpu", 0.005),
        measured("tf/cuda", 0.002),
    )
    found = gains(document, TF, [])
    assert [(gain.what, gain.to) for gain in found] == [
        ("variant", "tf+xla/cpu"),
        ("variant", "tf+keras_fit/cpu"),
    ]
    assert found[0].seconds == pytest.approx(0.008, rel=1e-3)
    assert found[0].takes == pytest.approx(0.012, rel=1e-3)


def test_what_is_not_certain_does_not() -> None:
    once = measured("tf/cpu", 0.020, processes=1)
    assert gains(study(once, measured("tf+xla/cpu", 0.010, processes=1)), once, []) == []
    disturbed = measured("tf+xla/cpu", 0.010, disturbance=Disturbance(blocks=[[BLOCK]], blocks_disturbed=1))
    assert gains(study(TF, disturbed), TF, []) == []


def test_threads_batch_size_and_heap_of_other_studies_count() -> None:
    def faster(seconds: float, id: str, **changes: object) -> object:
        return saved(study(measured("tf/cpu", seconds)), id, **changes)

    others = [
        faster(0.010, "threads-4", threads=4),
        faster(0.015, "threads-3", threads=3),
        faster(0.040, "threads-1", threads=1),
        faster(0.060, "batch-512", batch_size=512),
        faster(0.019, "batch-64", batch_size=64),
        faster(0.018, "system", heap="system"),
    ]
    found = gains(study(TF), TF, others)  # type: ignore[arg-type]
    assert [(gain.what, gain.to, gain.study) for gain in found] == [
        ("threads", "4", "threads-4"),
        ("batch_size", "512", "batch-512"),
        ("heap", "system", "system"),
    ]
    assert found[1].takes == pytest.approx(0.060 / 4, rel=1e-3)  # for as many images
    assert found[1].seconds == pytest.approx(0.005, rel=1e-2)
