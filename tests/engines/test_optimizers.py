"""Every optimizer in every engine against the reference, on lenet: one process an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.errors import Unavailable
from polybench.core.spec import UNTIMED_STEPS
from polybench.engines import ENGINES
from polybench.identity.check import Checker, Task
from polybench.identity.tensors import ALGORITHM, State, algorithm_errors
from polybench.wire.environment import worker_environment
from polybench.wire.messages import (
    Advance,
    Advanced,
    Load,
    Loaded,
    Measure,
    Measured,
    Prepare,
    Prepared,
    SnapshotTaken,
    TakeSnapshot,
)
from polybench.wire.process import WorkerProcess
from tests import small
from tests.engines.conftest import REPOSITORY, SOON_COMPILED
from tests.matrix import OPTIMIZER_CASES, OPTIMIZERS
from tests.sessions import InProcess

STEPS = 3
TIMEOUT = 240.0
REFERENCE = "polybench.engines.reference.engine:ReferenceEngine"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> small.Files:
    return small.files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    """One for all engines: what the reference trained for one of them is there for the next."""
    return Checker(InProcess(REFERENCE), tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WorkerProcess]]:
    """The process of a cell, which has loaded its framework; skips where that is missing.

    Variants share it where they want the same environment.
    """
    started: dict[frozenset[tuple[str, str]], WorkerProcess | str] = {}
    with ExitStack() as stack:

        def get(cell: str) -> WorkerProcess:
            engine, *variants = cell.split("+")
            environment = worker_environment(ENGINES[engine], "cpu", 2, tuple(variants)) | SOON_COMPILED
            wanted = frozenset({**environment, "engine": engine}.items())
            if wanted not in started:
                environment |= {"PYTHONPATH": str(REPOSITORY)}
                log = tmp_path_factory.mktemp(engine) / "log"
                process = stack.enter_context(WorkerProcess(os.environ | environment, log))
                started[wanted] = process
                try:
                    process.ask(Load(ENGINES[engine].factory), Loaded, TIMEOUT)
                except Unavailable as missing:
                    started[wanted] = missing.reason
            found = started[wanted]
            if isinstance(found, str):
                pytest.skip(found)
            return found

        yield get


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), OPTIMIZER_CASES)
def test_it_is_the_canonical_formula(
    name: str, case: str, worker: Any, checker: Checker, files: small.Files, tmp_path: Path
) -> None:
    _, *variants = name.split("+")
    session = worker(name)
    workload = msgspec.structs.replace(small.workload(), optimizer=OPTIMIZERS[case])
    job = msgspec.structs.replace(small.job(), workload=workload, variants=tuple(variants))

    parity = checker.check(session, Task(job, files.weights, files.epoch, STEPS, TIMEOUT))
    assert parity.status == "pass", parity.reason

    # In one block, over the changes of the rate; and after a reset, with which a measurement begins.
    job = msgspec.structs.replace(job, dtype="float64")
    prepared = session.ask(Prepare(job, str(files.weights), files.epoch), Prepared, TIMEOUT)
    job = msgspec.structs.replace(job, variants=(), conventions=prepared.conventions)
    reference = InProcess(REFERENCE)
    reference.ask(Prepare(job, str(files.weights), files.epoch), Prepared)
    reference.ask(Advance(0, STEPS), Advanced)
    expected = snapshot(reference, tmp_path / "expected")
    after_reset = Measure(STEPS - UNTIMED_STEPS)
    for label, request, kind in (("block", Advance(0, STEPS), Advanced), ("reset", after_reset, Measured)):
        session.ask(request, kind, TIMEOUT)
        got = snapshot(session, tmp_path / label)
        errors = list(algorithm_errors(STEPS, got, expected, ALGORITHM, OPTIMIZERS[case]))
        assert [error for error in errors if not error.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "bug", "case"),
    [
        ("torch", "TorchDecoupledDecay", "adam+decay"),
        ("tf", "KerasOwn", "adam"),
        ("tf", "KerasOwn", "rmsprop"),
        ("tf", "KerasRateInVelocity", "momentum"),
    ],
)
def test_what_the_frameworks_have_of_their_own_fails(
    engine: str, bug: str, case: str, worker: Any, checker: Checker, files: small.Files
) -> None:
    session = worker(engine)
    session.ask(Load(f"tests.engines.planted_optimizers:{bug}"), Loaded, TIMEOUT)
    try:
        workload = msgspec.structs.replace(small.workload(), optimizer=OPTIMIZERS[case])
        job = msgspec.structs.replace(small.job(), workload=workload)
        parity = checker.check(session, Task(job, files.weights, files.epoch, STEPS, TIMEOUT))
    finally:
        session.ask(Load(ENGINES[engine].factory), Loaded, TIMEOUT)
    assert {t.part for t in parity.tensors if not t.passed} == {"algorithm", "timed"}


def snapshot(session: Any, folder: Path) -> State:
    folder.mkdir()
    gradients, weights = folder / "gradients.npz", folder / "weights.npz"
    answer = session.ask(TakeSnapshot(STEPS, str(gradients), str(weights)), SnapshotTaken, TIMEOUT)
    assert answer.loss is not None
    return State(answer.loss, gradients, weights)
