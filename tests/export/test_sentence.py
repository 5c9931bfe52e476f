from __future__ import annotations

import pytest

from polybench.core.document.identity import Parity
from polybench.core.document.result import Result
from polybench.core.document.times import DeviceSpeedup, Relative
from polybench.core.document.training import AccuracyDifference
from polybench.export.sentence import sentences
from tests.factories import measured, study

BASELINE = measured("torch/cpu", 0.0165)


def other(
    speedup: float, interval: tuple[float, float] | None, cell: str = "tf/cpu", scope: str = "processes"
) -> Result:
    relative = Relative("torch/cpu", speedup, interval, scope)  # type: ignore[arg-type]
    return measured(cell, 0.0165 / speedup, relative=relative)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (other(1.93, (1.9, 1.97)), "tf is 1.93 (1.90 to 1.97) times as fast as torch on cpu."),
        (other(0.5, (0.4, 0.8)), "torch is 2.00 (1.25 to 2.50) times as fast as tf on cpu."),
        (
            other(1.01, (0.97, 1.05)),
            "no difference shown between tf and torch on cpu: ratio 1.01 (0.97 to 1.05).",
        ),
        (
            other(12.3, (11, 13.5), "torch+compile/cuda"),
            "torch+compile on cuda is 12.3 (11.0 to 13.5) times as fast as torch on cpu.",
        ),
        (
            other(0.99, (0.97, 1.05), "torch/cpu#2"),
            "no difference shown between torch#2 and torch on cpu: ratio 0.99 (0.97 to 1.05).",
        ),
        (
            other(1.93, (1.9, 1.97), scope="within one run"),
            "tf ran 1.93 (1.90 to 1.97) times as fast as torch on cpu (within one run; no verdict).",
        ),
        (
            other(0.5, None, scope="within one run"),
            "torch ran 2.00 times as fast as tf on cpu (within one run; no verdict).",
        ),
    ],
)
def test_wording(result: Result, sentence: str) -> None:
    assert sentences(study(BASELINE, result)) == [sentence]


def test_none_for_a_cell_that_is_not_ranked() -> None:
    failed = measured("tf/cpu", 0.01, parity=Parity("fail"), relative=None)
    assert sentences(study(BASELINE, failed)) == []


def test_none_without_the_baseline() -> None:
    assert sentences(study(other(2, (1.9, 2.1)))) == []


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            DeviceSpeedup("torch/cpu", 97.8, (97.0, 98.6)),
            "torch/cuda is 97.8 (97.0 to 98.6) times as fast as torch/cpu: 99.0% less time.",
        ),
        (
            DeviceSpeedup("torch/cpu", 0.5, (0.4, 0.6)),
            "torch/cuda is 0.50 (0.40 to 0.60) times as fast as torch/cpu: 100% more time.",
        ),
        (
            DeviceSpeedup("torch/cpu", 1.1, (0.9, 1.3)),
            "no difference shown between torch/cuda and torch/cpu: ratio 1.10 (0.90 to 1.30).",
        ),
        (
            DeviceSpeedup("torch/cpu", 97.8, (97.0, 98.6), "within one run"),
            "torch/cuda ran 97.8 (97.0 to 98.6) times as fast as torch/cpu (within one run; no verdict).",
        ),
    ],
    ids=["faster", "slower", "no difference", "one run"],
)
def test_a_device_against_the_cpu_is_said_as_the_published_studies_say_it(
    found: DeviceSpeedup, text: str
) -> None:
    assert sentences(study(measured("torch/cuda", 0.001, device_speedup=found))) == [text]


@pytest.mark.parametrize(
    ("mean", "value", "interval", "sentence"),
    [
        (
            0.509,
            -0.003,
            (-0.011, 0.005),
            "no difference of accuracy shown between tf and torch on cpu after 2 epochs: "
            "0.509 ±0.008 and 0.512 ±0.006 over 5 seeds, -0.003 (-0.011 to 0.005).",
        ),
        (
            0.481,
            -0.031,
            (-0.05, -0.012),
            "accuracy of tf is 0.031 (0.012 to 0.050) below that of torch on cpu after 2 epochs: "
            "0.481 ±0.008 and 0.512 ±0.006 over 5 seeds.",
        ),
        (
            0.543,
            0.031,
            (0.012, 0.05),
            "accuracy of tf is 0.031 (0.012 to 0.050) above that of torch on cpu after 2 epochs: "
            "0.543 ±0.008 and 0.512 ±0.006 over 5 seeds.",
        ),
    ],
)
def test_accuracies_come_with_their_spread_and_a_verdict(
    mean: float, value: float, interval: tuple[float, float], sentence: str
) -> None:
    found = AccuracyDifference("torch/cpu", value, interval, epochs=2, seeds=5)
    tf = measured("tf/cpu", 0.01, accuracy=mean, accuracy_std=0.008, accuracy_difference=found)
    torch = measured("torch/cpu", 0.0165, accuracy=0.512, accuracy_std=0.006)
    assert sentences(study(torch, tf))[1:] == [sentence]
    assert len(sentences(study(tf))) == 0


def test_one_seed_gives_no_verdict_on_accuracy() -> None:
    found = AccuracyDifference("torch/cpu", 0.0, None, epochs=1, seeds=1)
    tf = measured("tf/cpu", 0.01, accuracy=0.5, accuracy_difference=found)
    torch = measured("torch/cpu", 0.0165, accuracy=0.5)
    assert sentences(study(torch, tf))[1:] == [
        "accuracy of tf and torch on cpu after 1 epoch: 0.500 and 0.500 (one seed; no verdict)."
    ]
