from __future__ import annotations

import pytest

from polybench.render.footnotes import summary_sentences
from polybench.schema.parity import ParityCheck
from polybench.schema.result import AccuracyDifference, BaselineComparison, Comparison, Result
from tests.factories import measured, study

BASELINE = measured("torch/cpu", 0.0165)


def compared(
    speedup: float,
    interval: tuple[float, float] | None,
    configuration: str = "tf/cpu",
    scope: str = "processes",
) -> Result:
    relative = BaselineComparison("torch/cpu", speedup, interval, scope)  # type: ignore[arg-type]
    return measured(configuration, 0.0165 / speedup, vs_baseline=relative)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (compared(1.93, (1.9, 1.97)), "tf is 1.93 (1.90 to 1.97) times as fast as torch on cpu."),
        (compared(0.5, (0.4, 0.8)), "torch is 2.00 (1.25 to 2.50) times as fast as tf on cpu."),
        (
            compared(1.01, (0.97, 1.05)),
            "No significant difference between tf and torch on cpu: ratio 1.01 (0.97 to 1.05).",
        ),
        (
            compared(12.3, (11, 13.5), "torch+compile/cuda"),
            "torch+compile on cuda is 12.3 (11.0 to 13.5) times as fast as torch on cpu.",
        ),
        (
            compared(0.99, (0.97, 1.05), "torch/cpu#2"),
            "No significant difference between torch#2 and torch on cpu: ratio 0.99 (0.97 to 1.05).",
        ),
        (
            compared(1.93, (1.9, 1.97), scope="single_process"),
            "tf ran 1.93 (1.90 to 1.97) times as fast as torch on cpu (inconclusive: single process).",
        ),
        (
            compared(0.5, None, scope="single_process"),
            "torch ran 2.00 times as fast as tf on cpu (inconclusive: single process).",
        ),
    ],
)
def test_comparison_sentences(result: Result, sentence: str) -> None:
    assert summary_sentences(study(BASELINE, result)) == [sentence]


def test_unranked_configuration_has_no_sentence() -> None:
    failed = measured("tf/cpu", 0.01, parity=ParityCheck("fail"), vs_baseline=None)
    assert summary_sentences(study(BASELINE, failed)) == []


def test_missing_baseline_gives_no_sentence() -> None:
    assert summary_sentences(study(compared(2, (1.9, 2.1)))) == []


@pytest.mark.parametrize(
    ("speedup", "text"),
    [
        (
            Comparison("torch/cpu", 97.8, (97.0, 98.6)),
            "torch/cuda is 97.8 (97.0 to 98.6) times as fast as torch/cpu: 99.0% less time.",
        ),
        (
            Comparison("torch/cpu", 0.5, (0.4, 0.6)),
            "torch/cuda is 0.50 (0.40 to 0.60) times as fast as torch/cpu: 100% more time.",
        ),
        (
            Comparison("torch/cpu", 1.1, (0.9, 1.3)),
            "No significant difference between torch/cuda and torch/cpu: ratio 1.10 (0.90 to 1.30).",
        ),
        (
            Comparison("torch/cpu", 97.8, (97.0, 98.6), "single_process"),
            "torch/cuda ran 97.8 (97.0 to 98.6) times as fast as torch/cpu (inconclusive: single process).",
        ),
    ],
    ids=["faster", "slower", "no difference", "single process"],
)
def test_gpu_speedup_sentences(speedup: Comparison, text: str) -> None:
    assert summary_sentences(study(measured("torch/cuda", 0.001, gpu_speedup=speedup))) == [text]


@pytest.mark.parametrize(
    ("mean", "value", "interval", "sentence"),
    [
        (
            0.509,
            -0.003,
            (-0.011, 0.005),
            "No significant difference in accuracy between tf and torch on cpu after 2 epochs: "
            "0.509 ±0.008 and 0.512 ±0.006 over 5 seeds, difference -0.003 (-0.011 to 0.005).",
        ),
        (
            0.481,
            -0.031,
            (-0.05, -0.012),
            "The accuracy of tf is 0.031 (0.012 to 0.050) below that of torch on cpu after 2 epochs: "
            "0.481 ±0.008 and 0.512 ±0.006 over 5 seeds.",
        ),
        (
            0.543,
            0.031,
            (0.012, 0.05),
            "The accuracy of tf is 0.031 (0.012 to 0.050) above that of torch on cpu after 2 epochs: "
            "0.543 ±0.008 and 0.512 ±0.006 over 5 seeds.",
        ),
    ],
)
def test_accuracy_sentences_contain_spread_and_significance(
    mean: float, value: float, interval: tuple[float, float], sentence: str
) -> None:
    difference = AccuracyDifference("torch/cpu", value, interval, epochs=2, seeds=5)
    tf = measured("tf/cpu", 0.01, accuracy=mean, accuracy_std=0.008, accuracy_difference=difference)
    torch = measured("torch/cpu", 0.0165, accuracy=0.512, accuracy_std=0.006)
    assert summary_sentences(study(torch, tf))[1:] == [sentence]
    assert len(summary_sentences(study(tf))) == 0


def test_accuracy_of_one_seed_is_inconclusive() -> None:
    difference = AccuracyDifference("torch/cpu", 0.0, None, epochs=1, seeds=1)
    tf = measured("tf/cpu", 0.01, accuracy=0.5, accuracy_difference=difference)
    torch = measured("torch/cpu", 0.0165, accuracy=0.5)
    assert summary_sentences(study(torch, tf))[1:] == [
        "Accuracy of tf and torch on cpu after 1 epoch: 0.500 and 0.500 (inconclusive: one seed)."
    ]
