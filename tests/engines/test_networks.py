"""Parity check of every network in every engine, with tiny batches and few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks.layers import GELU, LSTM, Attention, Dense, MaxPool, MeanOverTime, ReLU, walk
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.parity_check.check import CheckRequest, ParityChecker, WorkerSession
from polybench.protocol import calls
from polybench.schema.options import Workload
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engine_matrix import (
    EVERYTHING_CELLS,
    IN_CI,
    NETWORK_CASES,
    NETWORKS,
    PATCHED_CELLS,
    SEQUENCES_CELLS,
    TEXT_CELLS,
)
from tests.engine_workers import TIMEOUT, Workers
from tests.engines.conftest import skip_unsupported
from tests.example_networks import DROPOUTS, EVERYTHING, FEATURES, PATCHED, SEQUENCES, TEXT

Check = Callable[[str, CheckRequest], ParityCheck]
DType = Literal["float32", "float64"]

every_engine = pytest.mark.parametrize("name", EVERYTHING_CELLS)
PUBLISHED = [
    pytest.param(network, name, marks=() if network == IN_CI else pytest.mark.wide) for network, name in NETWORK_CASES
]


@pytest.fixture
def check(workers: Workers, checker: ParityChecker) -> Check:
    def check(name: str, request: CheckRequest) -> ParityCheck:
        with skip_unsupported(name):
            return checker.check(workers(name), request)

    return check


def task(name: str, model: Model, batch_size: int, steps: int, folder: Path, dtype: DType = "float32") -> CheckRequest:
    files = small_datasets.files(
        folder, small_datasets.dataset((steps + 1) * batch_size, model=model), batch_size, model
    )
    workload = Workload(model.name, "noise", batch_size, model.optimizer, "fp32", 2)
    job = Job(model, workload, "cpu", dtype, tuple(name.split("+")[1:]))
    return CheckRequest(job, files.weights, files.epoch, steps, TIMEOUT)


def assert_passes(parity: ParityCheck, model: Model) -> None:
    assert parity.status == "pass", parity.reason
    weights = {tensor.name for tensor in parity.tensors if tensor.kind == "weight"}
    assert weights == set(model.tensor_shapes())


@every_engine
def test_a_network_with_every_layer_passes_the_parity_check(check: Check, name: str, tmp_path: Path) -> None:
    assert_passes(check(name, task(name, EVERYTHING, 4, 3, tmp_path)), EVERYTHING)


COMPILING_EACH_DTYPE = ("flux", "lux")


def timed(name: str, *case: object) -> Iterator[Any]:
    """Yield the case with the dtype of the part of the check that is timed; Julia compiles each dtype for a minute."""
    label = "-".join([*(one.name for one in case if isinstance(one, Model)), name])
    if name in COMPILING_EACH_DTYPE:
        yield pytest.param(*case, name, "float64", id=label)
        yield pytest.param(*case, name, "float32", id=f"{label}-float32", marks=pytest.mark.wide)
    else:
        yield pytest.param(*case, name, "float32", id=label)


@pytest.mark.parametrize(("name", "dtype"), [case for name in SEQUENCES_CELLS for case in timed(name)])
def test_a_network_with_every_sequence_layer_passes_the_parity_check(
    check: Check, name: str, dtype: DType, tmp_path: Path
) -> None:
    parity = check(name, task(name, SEQUENCES, 4, 2, tmp_path, dtype))
    assert_passes(parity, SEQUENCES)
    assert parity.float64 is not None
    assert parity.float64.tolerance["gradient"] == 1e-9


TRANSFORMERS = [
    case
    for model, names in ((TEXT, TEXT_CELLS), (PATCHED, PATCHED_CELLS))
    for name in names
    for case in timed(name, model)
]


@pytest.mark.parametrize(("model", "name", "dtype"), TRANSFORMERS)
def test_a_network_with_every_layer_of_transformers_passes_the_parity_check(
    check: Check, name: str, model: Model, dtype: DType, tmp_path: Path
) -> None:
    assert_passes(check(name, task(name, model, 4, 3, tmp_path, dtype)), model)


def test_a_layer_may_have_a_name_that_keras_gives(check: Check, tmp_path: Path) -> None:
    layers = (Dense("re_lu", 4, 6), ReLU(), MeanOverTime(), Dense("input", 6, 4))
    model = msgspec.structs.replace(FEATURES, name="names", layers=layers)
    assert_passes(check("tf", task("tf", model, 4, 2, tmp_path)), model)


WITHOUT_NORMS = msgspec.structs.replace(
    FEATURES,
    name="without norms",
    layers=(
        Attention("attention", 4, 2, causal=True),
        Dense("dense1", 4, 6),
        GELU(),
        Dense("dense2", 6, 6, bias=False),
        GELU("tanh"),
        MeanOverTime(),
        Dense("dense3", 6, 4),
    ),
)


@pytest.mark.parametrize("name", ["torch", "tf", "jax", "keras+jax", "keras+torch"])
def test_attention_and_gelu_pass_the_parity_check_to_nine_digits(check: Check, name: str, tmp_path: Path) -> None:
    parity = check(name, task(name, WITHOUT_NORMS, 4, 2, tmp_path))
    assert_passes(parity, WITHOUT_NORMS)
    assert parity.float64 is not None
    assert parity.float64.tolerance["gradient"] == 1e-9


@pytest.mark.parametrize(
    ("bug", "model"),
    [
        *((bug, TEXT) for bug in ("KerasNormEpsilon", "OtherGELU", "NoMask", "UnaddedGradients")),
        *((bug, TEXT) for bug in ("ShiftedMask", "MissingScale", "SoftmaxOverQueries")),
        *((bug, PATCHED) for bug in ("OtherGELU", "UnaddedGradients", "FrozenClassToken")),
        *((bug, PATCHED) for bug in ("KerasDecay", "CoupledDecay")),
        ("KerasGELU", WITHOUT_NORMS),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else value,
)
def test_injected_bugs_of_transformers_in_tensorflow_fail_the_parity_check(
    bug: str, model: Model, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    session = workers("tf")
    session.request(calls.load(f"tests.engines.tf.bug_injection:{bug}"), TIMEOUT)
    parity = checker.check(session, task("tf", model, 4, 2, tmp_path))
    assert "float64" in {tensor.part for tensor in parity.tensors if not tensor.passed}


@pytest.mark.wide  # every layer of transformers passes in tf, whose attention this compares with another
def test_attention_from_keras_projections_passes_the_parity_check(
    workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    session = workers("tf")
    session.request(calls.load("tests.engines.tf.bug_injection:OwnScores"), TIMEOUT)
    assert_passes(checker.check(session, task("tf", TEXT, 4, 2, tmp_path)), TEXT)


@pytest.mark.parametrize("engine", ["torch", "flux", "jax"])
@pytest.mark.parametrize(
    ("bug", "model"),
    [
        *((bug, TEXT) for bug in ("NoMask", "ShiftedMask", "MissingScale", "SoftmaxOverQueries", "UnaddedGradients")),
        *((bug, PATCHED) for bug in ("OtherNormEpsilon", "OtherGELU", "UnaddedGradients", "FrozenClassToken")),
        *((bug, PATCHED) for bug in ("CoupledDecay", "DecayOnBiases")),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else value,
)
def test_injected_bugs_of_transformers_fail_the_parity_check(
    engine: str, bug: str, model: Model, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    session = workers(engine)
    session.request(calls.load(f"tests.engines.{engine}.bug_injection:{bug}"), TIMEOUT)
    try:
        parity = checker.check(session, task(engine, model, 4, 2, tmp_path))
    finally:
        if engine == "flux":  # whose tests share a process
            session.request(calls.load("tests.engines.flux.bug_injection:BugsRemoved"), TIMEOUT)
    assert "float64" in {tensor.part for tensor in parity.tensors if not tensor.passed}


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("torch", LSTM("lstm", 4, 6, biases=2)),
        ("tf", LSTM("lstm", 4, 6, recurrent_activation="hard_sigmoid")),
        ("jax", FEATURES.layers[0]),
    ],
)
def test_supported_lstm_options_pass_the_parity_check(check: Check, name: str, layer: LSTM, tmp_path: Path) -> None:
    outputs = Dense("dense", layer.output_shape((5, 4))[0], 4)
    model = msgspec.structs.replace(FEATURES, layers=(layer, outputs))
    assert_passes(check(name, task(name, model, 4, 1, tmp_path)), model)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("torch", LSTM("lstm", 4, 6, recurrent_activation="hard_sigmoid")),
        ("tf", LSTM("lstm", 4, 6, biases=2)),
        ("flux", LSTM("lstm", 4, 6, biases=2)),
    ],
)
def test_unsupported_lstm_options_are_unavailable(check: Check, name: str, layer: LSTM, tmp_path: Path) -> None:
    model = msgspec.structs.replace(FEATURES, layers=(layer, Dense("dense", 6, 4)))
    with pytest.raises(EngineUnavailable, match=r"no lstm with (biases = 2|recurrent_activation = .hard_sigmoid.)"):
        check(name, task(name, model, 4, 1, tmp_path))


@pytest.mark.parametrize(("network", "name"), PUBLISHED)
def test_published_networks_pass_the_parity_check(check: Check, name: str, network: str, tmp_path: Path) -> None:
    model, batch_size, _ = NETWORKS[network]
    parity = check(name, task(name, model, batch_size, 1, tmp_path))
    assert parity.status == "pass", parity.reason
    if not any(isinstance(layer, MaxPool) for layer in walk(model.layers)):
        assert not any("max-pool" in deviation.rule for deviation in parity.known_deviations)


def test_each_precision_has_its_own_tolerance(check: Check, tmp_path: Path) -> None:
    fp32 = task("torch", LENET, 8, 1, tmp_path)
    workload = msgspec.structs.replace(fp32.job.workload, precision="bf16")
    bf16 = fp32._replace(job=msgspec.structs.replace(fp32.job, workload=workload))
    in_fp32, in_bf16 = (check("torch", request) for request in (fp32, bf16))
    assert [in_fp32.status, in_bf16.status] == ["pass", "pass"], (in_fp32.reason, in_bf16.reason)
    assert in_fp32.timed is not None
    assert in_bf16.timed is not None
    assert in_fp32.timed.tolerance["loss"] < in_bf16.timed.tolerance["loss"]


@every_engine
def test_an_engines_own_dropout_depends_on_the_seed_and_resumes_after_a_checkpoint(
    workers: Workers, name: str, tmp_path: Path
) -> None:
    job, weights, epoch, *_ = task(name, DROPOUTS, 4, 3, tmp_path)
    session = workers(name)

    def losses(seed: int) -> list[float]:
        prepare = calls.prepare(msgspec.structs.replace(job, seed=seed), str(weights), epoch, warmup_steps=2)
        return session.request(prepare, TIMEOUT).losses

    with skip_unsupported(name):
        losses(1)
    assert losses(1) == losses(1)
    assert losses(1)[0] != losses(2)[0]
    check_resume(session, weights, tmp_path / "checkpoint.npz")


def check_resume(session: WorkerSession, weights: Path, checkpoint: Path) -> None:
    """Check that training resumed after two steps has the losses and weights of uninterrupted training."""

    def train(first: int, n: int) -> float:
        return session.request(calls.train(first, n), TIMEOUT).loss

    def finish() -> tuple[list[float], dict[str, Any]]:
        losses = [train(2, 1), train(3, 2)]
        request = calls.take_snapshot(5, str(checkpoint.with_name("g.npz")), str(checkpoint.with_name("w.npz")))
        session.request(request, TIMEOUT)
        with np.load(request.arguments.weights) as tensors:
            return losses, dict(tensors)

    session.request(calls.reset_training(str(weights)), TIMEOUT)
    started = train(0, 2)
    session.request(calls.reset_training(str(weights)), TIMEOUT)
    assert train(0, 2) == pytest.approx(started, rel=1e-6)  # also with the same masks of dropout
    assert session.request(calls.save_training(str(checkpoint)), TIMEOUT) == ""
    expected = finish()
    session.request(calls.reset_training(str(weights)), TIMEOUT)
    train(0, 1)  # like the warm-up of another process
    session.request(calls.restore_training(str(checkpoint)), TIMEOUT)
    losses, tensors = finish()
    assert losses == pytest.approx(expected[0], rel=1e-6)
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor, expected[1][name], rtol=1e-4, atol=1e-6, err_msg=name)
