"""Parity check of the forward pass in every engine that has it, and bugs that it must find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.networks.layers import Dense, Dropout, Flatten, ReLU
from polybench.networks.model import Model
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.protocol import calls
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engine_workers import TIMEOUT, Workers
from tests.engines import bug_injection_any_engine
from tests.engines.bug_injection_any_engine import FORWARD_BUGS, FewImages, TrainingMode
from tests.example_networks import BIASED, EVERYTHING, PATCHED, SEQUENCES, TEXT

BATCH_SIZE, STEPS = 64, 2
DROPOUT = msgspec.structs.replace(
    BIASED, layers=(Flatten(), Dense("dense1", 108, 6), ReLU(), Dropout("dropout", 0.5), Dense("dense2", 6, 3))
)
"""A network with dropout, but without batch norm."""

NAMES = (
    *("reference", "torch", "torch+channels_last", "torch+compile", "tf", "tf+xla", "tf+eager"),
    *("flux", "lux", "jax", "keras", "keras+jax", "keras+torch"),
)
CASES = [
    pytest.param(name, model, id=f"{name}-{model.name}")
    for name in NAMES
    for model in (EVERYTHING, SEQUENCES)
    if (name, model) not in (("lux", SEQUENCES), ("torch+compile", SEQUENCES))  # no LSTM
]
FAMILIES = ("reference", "flux", "torch", "tf", "jax", "keras")


def check(
    name: str,
    model: Model,
    workers: Workers,
    checker: ParityChecker,
    folder: Path,
    bug: type | None = None,
    **work: Any,
) -> ParityCheck:
    engine, *variants = name.split("+")
    worker = workers(name)
    if bug is not None:
        worker.request(calls.load(f"{bug_injection_any_engine.__name__}:{bug.__name__}+{engine}"), TIMEOUT)
    data = small_datasets.dataset((STEPS + 1) * 4, model=model)
    files = small_datasets.files(folder, data, 4, model)
    workload = msgspec.structs.replace(small_datasets.workload(BATCH_SIZE, name="sgd"), pass_="forward", **work)
    job = msgspec.structs.replace(small_datasets.job(model), workload=workload, variants=tuple(variants))
    return checker.check(worker, CheckRequest(job, files.weights, files.epoch, STEPS, TIMEOUT))


@pytest.mark.parametrize(("name", "model"), CASES)
def test_the_logits_equal_those_of_the_reference(
    name: str, model: Model, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    parity = check(name, model, workers, checker, tmp_path)
    assert parity.status == "pass", parity.reason
    assert (parity.steps, parity.batch_size, parity.timed_batch_size) == (STEPS, 4, BATCH_SIZE)
    assert [(t.part, t.kind, t.step) for t in parity.tensors] == [
        (part, "logits", step) for part in ("float64", "timed") for step in range(STEPS)
    ]
    assert parity.float64 is not None
    assert parity.float64.tolerance == {"logits": 1e-9}
    assert parity.float64.max_logits_error is not None
    assert (parity.float64.max_loss_error, parity.float64.max_weight_error) == (None, None)


@pytest.mark.parametrize("model", [TEXT, PATCHED], ids=lambda model: model.name)
@pytest.mark.parametrize("name", [*("reference", "torch", "tf"), *("jax", "keras", "keras+jax", "keras+torch")])
def test_the_logits_of_transformers_equal_those_of_the_reference(
    name: str, model: Model, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    parity = check(name, model, workers, checker, tmp_path)
    assert parity.status == "pass", parity.reason


@pytest.mark.parametrize("name", ["torch", "tf", "jax"])
def test_the_logits_in_bf16_are_less_accurate(
    name: str, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    parity = check(name, EVERYTHING, workers, checker, tmp_path, precision="bf16")
    assert parity.status == "pass", parity.reason
    assert parity.timed is not None
    assert 1e-5 < (parity.timed.max_logits_error or 0) < 3e-2


@pytest.mark.parametrize("engine", FAMILIES)
@pytest.mark.parametrize("bug", FORWARD_BUGS)
def test_an_injected_bug_fails(
    bug: type, engine: str, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    for model in (BIASED, DROPOUT) if bug is TrainingMode else (BIASED,):
        (folder := tmp_path / model.layers[0].__class__.__name__).mkdir()
        parity = check(engine, model, workers, checker, folder, bug)
        failed = {tensor.part for tensor in parity.tensors if not tensor.passed}
        assert failed == ({"timed"} if bug is FewImages else {"float64", "timed"})
        assert "the logits differ from the reference's" in (parity.reason or "")


def test_a_forward_pass_leaves_weights_and_statistics_unchanged(workers: Workers, tmp_path: Path) -> None:
    worker = workers("torch")
    files = small_datasets.files(tmp_path, small_datasets.dataset(8, model=EVERYTHING), 4, EVERYTHING)
    workload = msgspec.structs.replace(small_datasets.workload(4, name="sgd"), pass_="forward")
    job = msgspec.structs.replace(small_datasets.job(EVERYTHING), workload=workload)
    worker.request(calls.prepare(job, str(files.weights), files.epoch), TIMEOUT)
    logits = tmp_path / "logits.npz"
    found = []
    for step in (0, 1, 0):
        assert worker.request(calls.run_steps(step, 1), TIMEOUT) is None
        worker.request(calls.write_step_logits(str(logits)), TIMEOUT)
        with np.load(logits) as file:
            found.append(file["logits"])
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[1])
