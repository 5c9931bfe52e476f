from __future__ import annotations

import pytest

from polybench.core.results import DeviceSpeedup, Parity, Relative, Result
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
    ("speedup", "text"),
    [
        (97.8, "torch/cuda is 97.8 times as fast as torch/cpu: 99.0% less time."),
        (0.5, "torch/cuda is 0.500 times as fast as torch/cpu: 100% more time."),
    ],
)
def test_a_device_against_the_cpu_is_said_as_the_published_studies_say_it(speedup: float, text: str) -> None:
    found = sentences(
        study(measured("torch/cuda", 0.001, device_speedup=DeviceSpeedup("torch/cpu", speedup, None)))
    )
    assert found == [text]
