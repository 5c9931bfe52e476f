"""The grid of a study: which cells it has, in which order, and what they are called."""

from __future__ import annotations

import pytest

from polybench.core.errors import BadInput
from polybench.core.spec import Cell, Study, cells


def names(*grid: Cell) -> list[str]:
    return [cell.name for cell in grid]


def test_variants_are_sorted_and_repeats_are_numbered() -> None:
    grid = cells(("torch", "torch+b+a", "torch", "torch+a+b"), ("cpu",))
    assert names(*grid) == ["torch/cpu", "torch+a+b/cpu", "torch/cpu#2", "torch+a+b/cpu#2"]


def test_each_precision_has_cells_of_its_own_and_the_first_is_not_named() -> None:
    grid = cells(("torch", "tf", "torch"), ("cpu",), ("fp32", "bf16"))
    assert names(*grid) == [
        "torch/cpu", "torch/cpu/bf16", "tf/cpu", "tf/cpu/bf16", "torch/cpu#2", "torch/cpu/bf16#2",
    ]  # fmt: skip
    assert names(*cells(("torch",), ("cpu",), ("bf16",))) == ["torch/cpu"]


def test_the_cpu_has_no_tf32() -> None:
    grid = cells(("torch",), ("cpu", "cuda"), ("fp32", "tf32"))
    assert names(*grid) == ["torch/cpu", "torch/cuda", "torch/cuda/tf32"]


@pytest.mark.parametrize(
    ("devices", "precision", "problem"),
    [
        (("cpu",), "tf32", "cuda only"),
        (("cpu", "cuda"), "tf32", "use --precision fp32 for the cpu"),
        (("cpu",), ("fp32", "tf32"), "cuda only"),
        (("cpu",), ("fp32", "fp32"), "twice"),
        (("cpu",), (), "no precision"),
    ],
    ids=["cpu", "cpu-among-others", "cpu-beside-fp32", "twice", "none"],
)
def test_what_no_machine_could_run_is_refused(
    devices: tuple[str, ...], precision: str | tuple[str, ...], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        Study(devices=devices, precision=precision)  # type: ignore[arg-type]


def test_each_number_of_replicas_has_cells_of_its_own_and_one_is_not_named() -> None:
    grid = cells(("torch", "tf"), ("cpu",), ("fp32", "bf16"), (1, 2))
    assert names(*grid)[:4] == ["torch/cpu", "torch/cpu/2x", "torch/cpu/bf16", "torch/cpu/bf16/2x"]
    assert names(*cells(("torch", "torch"), ("cuda",), replica_counts=(4,))) == [
        "torch/cuda/4x",
        "torch/cuda/4x#2",
    ]


@pytest.mark.parametrize("replicas", [(), (2, 2)])
def test_numbers_of_replicas_differ(replicas: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="--replicas: give different numbers"):
        Study(replicas=replicas)


def test_replicas_have_no_pipelines() -> None:
    with pytest.raises(BadInput, match="preloaded"):
        Study(replicas=2, input="pipeline")
