"""Warnings about numbers that cannot be true."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.networks import find_model
from polybench.networks.keras_examples import MNIST_MLP
from polybench.results.sanity import implausible_results
from polybench.schema.resources import PeakComparison
from polybench.schema.result import Pipeline, Result, TrainedEpoch, Training
from tests.factories import WORKLOAD, measured, trainings

LENET = find_model("lenet")
CACHE = 1 << 20


def warnings(result: Result, model: Any = LENET, cache_bytes: int | None = CACHE) -> list[str]:
    return list(implausible_results([result], model, cache_bytes))


def with_peak(fraction: float | None, seconds: float = 0.0165, bandwidth: float | None = None) -> Result:
    peak = PeakComparison(1e11, fraction, "512x512x512", bytes_per_second=bandwidth)
    return measured("torch/cpu", seconds, peak=peak)


def test_plausible_results_have_no_warning() -> None:
    assert not warnings(measured("torch/cpu", 0.0165))
    assert not warnings(with_peak(0.9, bandwidth=1e10))
    assert not warnings(measured("torch/cpu", 0.0165, trainings=trainings(0.4, 0.5), accuracy=0.45))


@pytest.mark.parametrize(("model", "possible", "impossible"), [(MNIST_MLP, 1.05, 1.2), (LENET, 4.2, 4.5)])
def test_more_than_the_machines_peak_is_reported(model: Any, possible: float, impossible: float) -> None:
    assert not warnings(with_peak(possible), model)
    assert not warnings(with_peak(None), model)
    (text,) = warnings(with_peak(impossible), model)
    assert text.startswith(f"torch/cpu: above the machine's peak: {impossible:.0%} of 100 GFLOP/s: either")


def test_a_step_that_is_shorter_than_its_memory_traffic_is_reported() -> None:
    weights = 4 * MNIST_MLP.parameters()
    bandwidth = 2 * (weights - CACHE) / 0.1  # a training step takes 100 ms
    assert weights > CACHE
    assert not warnings(with_peak(None, 0.095, bandwidth), MNIST_MLP)
    (text,) = warnings(with_peak(None, 0.08, bandwidth), MNIST_MLP)
    assert text.startswith("torch/cpu: a step of 80.0 ms is shorter than its memory traffic allows:")
    assert "take 100 ms" in text
    forward = msgspec.structs.replace(WORKLOAD, pass_="forward")
    result = with_peak(None, 0.06, bandwidth)
    result.workload = forward  # reads each weight once
    assert not warnings(result, MNIST_MLP)
    assert not warnings(with_peak(None, 0.01, bandwidth), MNIST_MLP, cache_bytes=weights)
    assert not warnings(with_peak(None, 0.01, bandwidth), MNIST_MLP, cache_bytes=None)
    result = with_peak(None, 0.01, bandwidth)
    result.device = "cuda"  # the cache is the CPU's
    assert not warnings(result, MNIST_MLP)


def test_rows_of_an_embedding_are_no_memory_traffic() -> None:
    lstm = find_model("imdb-fasttext")
    weights = 4 * lstm.parameters()
    assert not warnings(with_peak(None, 0.01, 2 * (weights - CACHE) / 0.1), lstm)


def test_an_accuracy_at_chance_is_reported() -> None:
    assert not warnings(measured("torch/cpu", 0.0165, accuracy=0.12))
    (text,) = warnings(measured("torch/cpu", 0.0165, accuracy=0.104))
    assert text.startswith("torch/cpu: accuracy at chance: 10.4% with 10 classes")


@pytest.mark.parametrize(("loss", "count"), [(2.3105, 1), (2.3, 0), (2.4, 0)])
def test_a_loss_that_does_not_move_is_reported(loss: float, count: int) -> None:
    training = Training(0, [TrainedEpoch(1.0, [390.0], 2.0, None), TrainedEpoch(1.0, [390.0], loss, None)])
    texts = warnings(measured("torch/cpu", 0.0165, losses=[2.31, 2.3], trainings=[training]))
    assert len(texts) == count
    assert all(text.startswith("torch/cpu: the loss does not move: 2.31 in the first step") for text in texts)


def test_an_incomplete_training_is_not_judged_by_its_loss() -> None:
    training = Training(0, [TrainedEpoch(1.0, [390.0], 2.31, None)], complete=False)
    assert not warnings(measured("torch/cpu", 0.0165, losses=[2.31], trainings=[training]))


@pytest.mark.parametrize(("loading", "training"), [(25_000.0, 12_800 / 1.76), (12_800 / 1.76, 25_000.0)])
def test_a_training_that_is_faster_than_its_slower_stage_is_reported(loading: float, training: float) -> None:
    (text,) = warnings(measured("torch/cpu", 0.01, pipeline=Pipeline(0.001, 0.009, loading, training)))
    assert text.startswith("torch/cpu: impossible: 176% of the rate of its slower stage: other programs slowed")


def test_a_stage_that_is_as_fast_as_the_training_or_unknown_has_no_warning() -> None:
    for rates in ((12_000.0, 25_000.0), (None, 5_000.0), (5_000.0, None)):
        assert not warnings(measured("torch/cpu", 0.01, pipeline=Pipeline(0.001, 0.009, *rates)))
