"""The answer of a study in sentences."""

from __future__ import annotations

import msgspec
import pytest

from polybench.render.verdicts import summary_sentences
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import (
    SINGLE_PROCESS,
    AccuracyDifference,
    BaselineComparison,
    Comparison,
    Result,
    busy_hint,
    busy_reason,
)
from tests.factories import measured, study

BASELINE = measured("torch/cpu", 0.0165)


def compared(
    speedup: float, interval: tuple[float, float] | None, configuration: str = "tf/cpu", scope: str = "processes"
) -> Result:
    relative = BaselineComparison("torch/cpu", speedup, interval, scope)  # type: ignore[arg-type]
    return measured(configuration, 0.0165 / speedup, vs_baseline=relative)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (compared(1.93, (1.9, 1.97)), "tf is 1.93 (1.90 to 1.97) times as fast as torch."),
        (compared(0.5, (0.4, 0.8)), "torch is 2.00 (1.25 to 2.50) times as fast as tf."),
        (compared(1.01, (0.97, 1.05)), "No significant difference between tf and torch: ratio 1.01 (0.97 to 1.05)."),
        (
            compared(12.3, (11, 13.5), "torch+compile/cuda"),
            "torch+compile on cuda is 12.3 (11.0 to 13.5) times as fast as torch on cpu.",
        ),
        (
            compared(0.99, (0.97, 1.05), "torch/cpu#2"),
            "No significant difference between torch#2 and torch: ratio 0.99 (0.97 to 1.05).",
        ),
        (compared(1.93, (1.9, 1.97), scope="single_process"), f"Cannot tell: {SINGLE_PROCESS}."),
        (compared(0.5, None, scope="single_process"), f"Cannot tell: {SINGLE_PROCESS}."),
    ],
)
def test_comparison_sentences(result: Result, sentence: str) -> None:
    assert summary_sentences(study(BASELINE, result)) == [sentence]


def test_unranked_configuration_or_missing_baseline_gives_no_sentence() -> None:
    failed = measured("tf/cpu", 0.01, parity=ParityCheck("fail"), vs_baseline=None)
    assert summary_sentences(study(BASELINE, failed)) == ["A step of torch takes 16.5 ms (16.1 ms to 16.9 ms)."]
    assert len(summary_sentences(study(compared(2, (1.9, 2.1))))) == 1
    assert summary_sentences(study(failed)) == []


@pytest.mark.parametrize(
    ("steal", "reason", "hint"),
    [
        (0.2, "other programs (julia) used the cores in every timing block", "stop other programs, or let"),
        (0.4, "the hypervisor gave the cores to other machines in every timing block", "measure when the host is idle"),
    ],
)
def test_interference_of_the_host_is_not_that_of_programs(steal: float, reason: str, hint: str) -> None:
    quiet = BlockCounters(1.0, 1.0, other_process_cpu_seconds=0.0, steal_seconds=0.2)
    block = BlockCounters(1.0, 1.0, other_process_cpu_seconds=0.3, steal_seconds=steal, affected=True)
    interference = Interference(blocks_affected=1, blocks=[[quiet], [block]])
    assert busy_reason(interference, ["julia"]) == reason
    assert busy_hint(interference).startswith(hint)
    comparison = BaselineComparison("torch/cpu", 2.0, (1.9, 2.1), inconclusive_reason="interference affected 1 of 2")
    affected = measured("tf/cpu", 0.01, interference=interference, vs_baseline=comparison)
    *_, remedy = summary_sentences(study(BASELINE, affected))
    assert remedy.lower().startswith(hint)


def test_a_step_without_a_result_has_no_number() -> None:
    step = msgspec.structs.replace(BASELINE.step_time, ci95=(0.004, 0.068))
    assert summary_sentences(study(msgspec.structs.replace(BASELINE, step_time=step))) == [
        "NO RESULT: the mean step of torch is between 4.00 ms and 68.0 ms. Use more --processes."
    ]


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
        (Comparison("torch/cpu", 97.8, (97.0, 98.6), "single_process"), f"Cannot tell: {SINGLE_PROCESS}."),
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
            "No significant difference in accuracy between tf and torch after 2 epochs: "
            "0.509 ±0.008 and 0.512 ±0.006 over 5 seeds, difference -0.003 (-0.011 to 0.005).",
        ),
        (
            0.481,
            -0.031,
            (-0.05, -0.012),
            "The accuracy of tf is 0.031 (0.012 to 0.050) below that of torch after 2 epochs: "
            "0.481 ±0.008 and 0.512 ±0.006 over 5 seeds.",
        ),
        (
            0.543,
            0.031,
            (0.012, 0.05),
            "The accuracy of tf is 0.031 (0.012 to 0.050) above that of torch after 2 epochs: "
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


def test_accuracy_of_one_seed_is_inconclusive() -> None:
    difference = AccuracyDifference("torch/cpu", 0.0, None, epochs=1, seeds=1)
    tf = measured("tf/cpu", 0.01, accuracy=0.5, accuracy_difference=difference)
    torch = measured("torch/cpu", 0.0165, accuracy=0.5)
    assert summary_sentences(study(torch, tf))[1:] == [
        "Accuracy of tf and torch after 1 epoch: 0.500 and 0.500 (cannot tell: one seed)."
    ]


def test_the_fastest_comes_first_and_what_has_no_verdict_before_it() -> None:
    unclear = BaselineComparison("torch/cpu", 1.2, (0.3, 5.0), inconclusive_reason="the interval is too wide: 0.3 to 5")
    rows = [
        compared(0.5, (0.49, 0.51), "flux/cpu"),
        compared(1.93, (1.9, 1.97)),
        measured("jax/cpu", 0.01, vs_baseline=unclear),
    ]
    assert summary_sentences(study(BASELINE, *rows)) == [
        "NO RESULT for jax and torch: the interval is too wide: 0.3 to 5.",
        "tf is 1.93 (1.90 to 1.97) times as fast as torch.",
        "torch is 2.00 (1.96 to 2.04) times as fast as flux.",
    ]


def test_many_comparisons_are_shortened() -> None:
    rows = [compared(1 + number / 10, (1 + number / 11, 1 + number / 9), f"tf/cpu#{number}") for number in range(2, 41)]
    sentences = summary_sentences(study(BASELINE, *rows))
    assert len(sentences) == 6
    assert sentences[0].startswith("tf#40 is 5.00 ")
    assert sentences[3] == "(34 more comparisons are in the table.)"
    assert sentences[-1].startswith("tf#2 is ")
    one_process = [
        measured(f"tf/cpu#{n}", 0.01, vs_baseline=BaselineComparison("torch/cpu", 1.1, None, reason))
        for n, reason in enumerate(["single_process"] * 5)
    ]
    with_verdict = summary_sentences(study(BASELINE, *one_process, compared(1.93, (1.9, 1.97))))
    assert (
        with_verdict[0] == f"Cannot tell for tf#0 and torch, tf#1 and torch, tf#2 and torch, 2 more: {SINGLE_PROCESS}."
    )
