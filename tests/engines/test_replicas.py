"""Two replicas compute what one process does, to 1e-9; replicas that do not train together are found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from polybench.core.errors import Unavailable
from polybench.core.layers import BatchNorm, Conv, Dense, Dropout, Flatten, ReLU
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.engines import ENGINES
from polybench.identity.check import Checker, Task
from polybench.identity.tensors import algorithm_tolerance
from polybench.models import MODELS
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded, Prepare, Prepared
from polybench.wire.process import WorkerProcess
from polybench.wire.replica_messages import ExchangeTimed, TimeExchange
from tests import small
from tests.engines.conftest import REPOSITORY, SOON_COMPILED
from tests.engines.test_networks import goes_on
from tests.sessions import InProcess

TIMEOUT = 120.0
REFERENCE = "polybench.engines.reference.engine:ReferenceEngine"
PLANTED = "tests.engines.planted_replicas:"
ABLE = [name for name, row in ENGINES.items() if row.replicas and row.does_arithmetic]

TINY = Model(
    name="tiny",
    summary="",
    input_shape=(3, 6, 6),
    classes=3,
    layers=(
        Conv("conv1", 3, 4, 3),
        ReLU(),
        Dropout("dropout1", 0.5),
        Flatten(),
        Dense("dense1", 64, 3),
    ),
    batch_size=8,
    optimizer=Optimizer(),
    parity_batch_size=8,
)

_, *_others = TINY.layers
_normal = (Conv("conv1", 3, 4, 3, bias=False), BatchNorm("norm1", 4), *_others)
WITH_NORM = msgspec.structs.replace(TINY, layers=_normal)
"""JAX's compiler takes its statistics from the whole batch; the others have no such network."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(InProcess(REFERENCE), tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WorkerProcess]]:
    """An engine's worker of two replicas, with its framework loaded; skips where that is missing."""
    started: dict[str, WorkerProcess | str] = {}
    with ExitStack() as stack:

        def get(engine: str) -> WorkerProcess:
            if engine not in started:
                environment = worker_environment(ENGINES[engine], "cpu", 2, replicas=2) | SOON_COMPILED
                environment |= {"PYTHONPATH": str(REPOSITORY)}
                log = tmp_path_factory.mktemp(engine) / "log"
                started[engine] = process = stack.enter_context(WorkerProcess(environment, log))
                try:
                    process.ask(Load(ENGINES[engine].factory), Loaded, TIMEOUT)
                except Unavailable as missing:
                    started[engine] = missing.reason
            found = started[engine]
            if isinstance(found, str):
                pytest.skip(found)
            return found

        yield get


def task(folder: Path, model: Model = TINY) -> Task:
    files = small.files(folder, model=model)
    job = small.job(model)
    optimizer = Optimizer("momentum", 0.05, weight_decay=0.1)
    workload = msgspec.structs.replace(job.workload, replicas=2, threads=2, optimizer=optimizer)
    return Task(msgspec.structs.replace(job, workload=workload), files.weights, files.epoch, 2, TIMEOUT)


@pytest.mark.parametrize("engine", ABLE)
def test_two_are_one(engine: str, worker: Any, checker: Checker, tmp_path: Path) -> None:
    """Each has its part of the dropout's mask, too."""
    model = WITH_NORM if engine == "jax" else TINY
    session, given = worker(engine), task(tmp_path, model)
    parity = checker.check(session, given)
    assert parity.status == "pass", parity.reason
    assert parity.algorithm is not None
    assert parity.algorithm.tolerance == algorithm_tolerance(model)

    # In parts of the framework's own dropout; JAX's compiler leaves nothing out.
    session.ask(Prepare(given.job, str(given.weights), given.epoch), Prepared, TIMEOUT)
    timed = session.ask(TimeExchange(2), ExchangeTimed, TIMEOUT).seconds
    assert (timed is None) == (engine == "jax")

    # Of their dropout only the first one's generator is kept.
    layers = tuple(layer for layer in model.layers if not isinstance(layer, Dropout))
    job = msgspec.structs.replace(given.job, model=msgspec.structs.replace(model, layers=layers))
    session.ask(Prepare(job, str(given.weights), given.epoch), Prepared, TIMEOUT)
    goes_on(session, given.weights, tmp_path / "kept.npz")


@pytest.mark.parametrize(
    ("engine", "bug"),
    [
        *(("torch", f"Torch{bug}") for bug in ("Sum", "NoSync", "SameSlice")),
        *(("tf", f"TensorFlow{bug}") for bug in ("Sum", "NoSync", "SameSlice")),
    ],
)
def test_replicas_that_do_not_train_together_fail(
    engine: str, bug: str, worker: Any, checker: Checker, tmp_path: Path
) -> None:
    session = worker(engine)
    session.ask(Load(PLANTED + bug), Loaded, TIMEOUT)
    try:
        parity = checker.check(session, task(tmp_path))
    finally:
        session.ask(Load(ENGINES[engine].factory), Loaded, TIMEOUT)
    assert {tensor.part for tensor in parity.tensors if not tensor.passed} >= {"algorithm"}


@pytest.mark.parametrize("engine", ["torch", "tf"])
def test_batch_norm_of_a_part_is_no_batch_norm_of_the_batch(engine: str, worker: Any, tmp_path: Path) -> None:
    given = task(tmp_path, MODELS["resnet32"])
    with pytest.raises(Unavailable, match="batch norm"):
        worker(engine).ask(Prepare(given.job, str(given.weights), given.epoch), Prepared, TIMEOUT)


def test_nobody_else_can_reach_them(worker: Any, tmp_path: Path) -> None:
    """Whatever PyTorch listens at is on the loopback."""
    session, given = worker("torch"), task(tmp_path)
    session.ask(Prepare(given.job, str(given.weights), given.epoch), Prepared, TIMEOUT)
    process = psutil.Process(session.pid)
    connections = [one for part in (process, *process.children()) for one in part.net_connections()]
    assert connections
    assert {one.laddr.ip for one in connections} <= {"127.0.0.1", "::1"}
