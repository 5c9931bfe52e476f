"""A bug that is injected into any engine must fail the parity check."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from polybench.networks.layers import BatchNorm, Dense, Dropout, Flatten, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.protocol import calls
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engine_workers import TIMEOUT, Workers
from tests.engines import bug_injection_any_engine
from tests.engines.bug_injection_any_engine import BUGS, NoBug

# Drops out pixels and features; the batch for the reference is smaller than the timed one.
NETWORK = Model(
    name="dropouts",
    summary="",
    input_shape=(3, 9, 8),
    classes=3,
    layers=(
        BatchNorm("norm1", 3),
        Dropout("dropout1", 0.25),
        Flatten(),
        Dense("dense1", 216, 6),
        ReLU(),
        Dropout("dropout2", 0.5),
        Dense("dense2", 6, 3),
    ),
    batch_size=64,
    optimizer=Optimizer("momentum", 0.05, lr_schedule=((40, 0.01), (60, 0.05), (90, 0.002))),
    parity_batch_size=4,
)
FAMILIES = ("reference", "torch", "tf", "jax", "keras", "flux")


def check(bug: type, engine: str, workers: Workers, checker: ParityChecker, folder: Path) -> ParityCheck:
    worker = workers(engine)
    worker.request(calls.load(f"{bug_injection_any_engine.__name__}:{bug.__name__}+{engine}"), TIMEOUT)
    files = small_datasets.files(folder, small_datasets.dataset(4 * 4, model=NETWORK), 4, NETWORK)
    workload = msgspec.structs.replace(small_datasets.workload(), batch_size=64, optimizer=NETWORK.optimizer)
    job = msgspec.structs.replace(small_datasets.job(NETWORK), workload=workload)
    return checker.check(worker, CheckRequest(job, files.weights, files.epoch, 3, TIMEOUT))


@pytest.mark.parametrize("engine", FAMILIES)
@pytest.mark.parametrize("bug", BUGS)
def test_an_injected_bug_fails_for_its_reason(
    bug: type, engine: str, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    parity = check(bug, engine, workers, checker, tmp_path)
    assert parity.status == "fail"
    failed = {(tensor.part, tensor.kind) for tensor in parity.tensors if not tensor.passed}
    assert {kind for part, kind in failed if part == "float64"} <= {"schedule"}
    assert BUGS[bug] <= {kind for _, kind in failed}


@pytest.mark.parametrize("engine", FAMILIES)
def test_the_engine_without_the_bug_passes(
    engine: str, workers: Workers, checker: ParityChecker, tmp_path: Path
) -> None:
    parity = check(NoBug, engine, workers, checker, tmp_path)
    assert parity.status == "pass", parity.reason
    assert {tensor.kind for tensor in parity.tensors} >= set().union(*BUGS.values())
