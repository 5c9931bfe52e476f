"""Parity check of every optimizer in every engine, with one process per engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines.job import Job
from polybench.networks.layers import Conv, Dense, Flatten, ReLU
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.parity_check.comparison import FLOAT64_TOLERANCE, State, float64_errors
from polybench.protocol import calls
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from tests import small_datasets
from tests.engine_matrix import OPTIMIZER_CASES, OPTIMIZERS
from tests.engine_workers import TIMEOUT, Workers
from tests.worker_sessions import InProcess

STEPS = 3
REFERENCE = "polybench.engines.reference.engine:ReferenceEngine"


# Biases, matrices and kernels; unlike lenet, XLA runs it quickly without optimizing it.
SMALL = msgspec.structs.replace(
    LENET, name="small", input_shape=(3, 6, 6),
    layers=(Conv("conv", 3, 4, 3), ReLU(), Flatten(), Dense("dense1", 64, 16), ReLU(), Dense("dense2", 16, 10)),
)  # fmt: skip


def network(engine: str) -> Model:
    """Return a network that the engine runs soon: Julia's package contains lenet as compiled code."""
    return LENET if engine in ("flux", "lux") else SMALL


Files = Callable[[Model], small_datasets.Files]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return functools.cache(lambda model: small_datasets.files(tmp_path_factory.mktemp("files"), model=model))


def job_with(case: str, model: Model) -> Job:
    job = small_datasets.job(model)
    return msgspec.structs.replace(job, workload=msgspec.structs.replace(job.workload, optimizer=OPTIMIZERS[case]))


# The case with weight decay also checks the other rules of the optimizer.
CASES = [
    pytest.param(name, case, marks=pytest.mark.wide if (name, f"{case}+decay") in OPTIMIZER_CASES else ())
    for name, case in OPTIMIZER_CASES
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_every_optimizer_computes_the_canonical_formula(
    name: str, case: str, workers: Workers, checker: ParityChecker, files: Files, tmp_path: Path
) -> None:
    engine, *variants = name.split("+")
    session, model = workers(name), network(engine)
    given = files(model)
    job = msgspec.structs.replace(job_with(case, model), variants=tuple(variants))

    parity = checker.check(session, CheckRequest(job, given.weights, given.epoch, STEPS, TIMEOUT))
    assert parity.status == "pass", parity.reason

    # In one block, including rate changes, and after a reset, as at the start of a measurement.
    job = msgspec.structs.replace(job, dtype="float64")
    prepared = session.request(calls.prepare(job, str(given.weights), given.epoch), TIMEOUT)
    job = msgspec.structs.replace(job, variants=(), conventions=prepared.conventions)
    reference = InProcess(REFERENCE)
    reference.request(calls.prepare(job, str(given.weights), given.epoch))
    reference.request(calls.run_steps(0, STEPS))
    expected = snapshot(reference, tmp_path / "expected")
    after_reset = calls.measure_block(STEPS - WARMUP_STEPS_PER_BLOCK)
    for label, request in (("block", calls.run_steps(0, STEPS)), ("reset", after_reset)):
        session.request(request, TIMEOUT)
        state = snapshot(session, tmp_path / label)
        errors = list(float64_errors(range(STEPS), state, expected, FLOAT64_TOLERANCE, OPTIMIZERS[case]))
        assert [error for error in errors if not error.passed] == []


@pytest.mark.parametrize(
    ("engine", "bug", "case"),
    [
        ("torch", "DecoupledDecay", "adam+decay"),
        ("tf", "KerasEpsilon", "adam"),
        ("tf", "KerasEpsilon", "rmsprop"),
        ("tf", "KerasEpsilon", "adamw"),
        ("tf", "KerasClipping", "clipped"),
        ("tf", "KerasRateInVelocity", "momentum"),
    ],
)
def test_the_frameworks_own_formulas_fail_the_parity_check(
    engine: str, bug: str, case: str, workers: Workers, checker: ParityChecker, files: Files
) -> None:
    session, given = workers(engine), files(LENET)
    session.request(calls.load(f"tests.engines.{engine}.bug_injection:{bug}"), TIMEOUT)
    request = CheckRequest(job_with(case, LENET), given.weights, given.epoch, STEPS, TIMEOUT)
    parity = checker.check(session, request)
    # 1e-6 of the norm is rounding error in float32.
    parts = {"float64"} if bug == "KerasClipping" else {"float64", "timed"}
    assert {t.part for t in parity.tensors if not t.passed} == parts


def snapshot(session: Any, folder: Path) -> State:
    folder.mkdir()
    gradients, weights = folder / "gradients.npz", folder / "weights.npz"
    loss = session.request(calls.take_snapshot(STEPS, str(gradients), str(weights)), TIMEOUT)
    assert loss is not None
    return State(loss, gradients, weights)
