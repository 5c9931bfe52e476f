"""The configurations of a study: their order and their names."""

from __future__ import annotations

import pytest

from polybench.errors import BadInput
from polybench.schema.options import Configuration, Study, configuration_grid


def names(*grid: Configuration) -> list[str]:
    return [configuration.name for configuration in grid]


def test_variants_are_sorted_and_repeats_are_numbered() -> None:
    grid = configuration_grid(("torch", "torch+b+a", "torch", "torch+a+b"), ("cpu",))
    assert names(*grid) == ["torch/cpu", "torch+a+b/cpu", "torch/cpu#2", "torch+a+b/cpu#2"]


def test_each_precision_is_a_configuration_and_the_first_is_not_named() -> None:
    grid = configuration_grid(("torch", "tf", "torch"), ("cpu",), ("fp32", "bf16"))
    assert names(*grid) == [
        "torch/cpu", "torch/cpu/bf16", "tf/cpu", "tf/cpu/bf16", "torch/cpu#2", "torch/cpu/bf16#2",
    ]  # fmt: skip
    assert names(*configuration_grid(("torch",), ("cpu",), ("bf16",))) == ["torch/cpu"]


def test_the_cpu_has_no_tf32() -> None:
    grid = configuration_grid(("torch",), ("cpu", "cuda"), ("fp32", "tf32"))
    assert names(*grid) == ["torch/cpu", "torch/cuda", "torch/cuda/tf32"]


@pytest.mark.parametrize(
    ("devices", "precision", "problem"),
    [
        (("cpu",), "tf32", "cuda only"),
        (("cpu", "cuda"), "tf32", "use --precision fp32 for the cpu"),
        (("cpu",), ("fp32", "tf32"), "cuda only"),
        (("cpu",), ("fp32", "fp32"), "duplicate precision"),
        (("cpu",), (), "no precision"),
    ],
    ids=["cpu", "cpu-among-others", "cpu-with-fp32", "duplicate", "none"],
)
def test_studies_that_no_machine_can_run_are_rejected(
    devices: tuple[str, ...], precision: str | tuple[str, ...], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        Study(devices=devices, precision=precision)  # type: ignore[arg-type]


def test_each_number_of_replicas_is_a_configuration_and_one_is_not_named() -> None:
    grid = configuration_grid(("torch", "tf"), ("cpu",), ("fp32", "bf16"), (1, 2))
    assert names(*grid)[:4] == ["torch/cpu", "torch/cpu/2x", "torch/cpu/bf16", "torch/cpu/bf16/2x"]
    assert names(*configuration_grid(("torch", "torch"), ("cuda",), replica_counts=(4,))) == [
        "torch/cuda/4x",
        "torch/cuda/4x#2",
    ]


@pytest.mark.parametrize("replicas", [(), (2, 2)])
def test_duplicate_numbers_of_replicas_are_rejected(replicas: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="--replicas: expected distinct numbers"):
        Study(replicas=replicas)


def test_replicas_with_a_pipeline_are_rejected() -> None:
    with pytest.raises(BadInput, match="preloaded"):
        Study(replicas=2, input="pipeline")
