"""Data-parallel training: two replicas equal one process within 1e-9, and injected bugs are detected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.networks import MODELS
from polybench.networks.layers import BatchNorm, Conv, Dense, Dropout, Flatten, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.parity_check.comparison import float64_tolerance
from polybench.protocol import calls
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from tests import small_datasets
from tests.engine_workers import TIMEOUT, fast_compilation
from tests.engines.test_networks import check_resume

REPOSITORY = Path(__file__).parents[2]

DATA_PARALLEL = [name for name, spec in ENGINES.items() if spec.replicas and spec.computes]

TINY = Model(
    name="tiny",
    summary="",
    input_shape=(3, 6, 6),
    classes=3,
    layers=(Conv("conv1", 3, 4, 3), ReLU(), Dropout("dropout1", 0.5), Flatten(), Dense("dense1", 64, 3)),
    batch_size=8,
    optimizer=Optimizer(),
    parity_batch_size=8,
)

_, *_others = TINY.layers
_normal = (Conv("conv1", 3, 4, 3, bias=False), BatchNorm("norm1", 4), *_others)
WITH_NORM = msgspec.structs.replace(TINY, layers=_normal)
"""Network with batch norm, which only JAX supports data-parallel, with statistics of the whole batch."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WorkerProcess]]:
    """Worker of an engine with two replicas."""
    folder, started = tmp_path_factory.mktemp("workers"), {}
    with contextlib.ExitStack() as stack:

        def worker(engine: str) -> WorkerProcess:
            if engine not in started:
                environment = worker_environment(ENGINES[engine], "cpu", 2, (), replicas=2)
                environment |= {"PYTHONPATH": str(REPOSITORY)} | fast_compilation(engine)
                started[engine] = stack.enter_context(WorkerProcess(environment, folder / f"{engine}.log"))
            try:
                started[engine].request(calls.load(ENGINES[engine].factory), TIMEOUT)
            except EngineUnavailable as missing:
                pytest.skip(missing.reason)
            return started[engine]

        yield worker


def task(folder: Path, model: Model = TINY) -> CheckRequest:
    files = small_datasets.files(folder, model=model)
    job = small_datasets.job(model)
    optimizer = Optimizer("momentum", 0.05, weight_decay=0.1)
    workload = msgspec.structs.replace(job.workload, replicas=2, threads=2, optimizer=optimizer)
    return CheckRequest(msgspec.structs.replace(job, workload=workload), files.weights, files.epoch, 2, TIMEOUT)


@pytest.mark.parametrize("engine", DATA_PARALLEL)
def test_two_replicas_equal_one_process(engine: str, worker: Any, checker: ParityChecker, tmp_path: Path) -> None:
    """Each replica also has its shard of the dropout masks."""
    model = WITH_NORM if engine == "jax" else TINY
    session, request = worker(engine), task(tmp_path, model)
    parity = checker.check(session, request)
    assert parity.status == "pass", parity.reason
    assert parity.float64 is not None
    assert parity.float64.tolerance == float64_tolerance(model, request.job.workload)

    # With the framework's own dropout; JAX cannot omit the gradient exchange.
    session.request(calls.prepare(request.job, str(request.weights), request.epoch), TIMEOUT)
    allreduce_seconds = session.request(calls.time_allreduce(2), TIMEOUT)
    assert (allreduce_seconds is None) == (engine == "jax")

    # Without dropout, since a checkpoint has the generator of rank 0 only.
    layers = tuple(layer for layer in model.layers if not isinstance(layer, Dropout))
    job = msgspec.structs.replace(request.job, model=msgspec.structs.replace(model, layers=layers))
    session.request(calls.prepare(job, str(request.weights), request.epoch), TIMEOUT)
    check_resume(session, request.weights, tmp_path / "checkpoint.npz")


@pytest.mark.parametrize("engine", ["torch", "tf"])
@pytest.mark.parametrize("bug", ["SummedGradients", "NoSync", "SameShard"])
def test_injected_bugs_fail_the_parity_check(
    engine: str, bug: str, worker: Any, checker: ParityChecker, tmp_path: Path
) -> None:
    session = worker(engine)
    session.request(calls.load(f"tests.engines.{engine}.bug_injection:{bug}"), TIMEOUT)
    parity = checker.check(session, task(tmp_path))
    assert {tensor.part for tensor in parity.tensors if not tensor.passed} >= {"float64"}


@pytest.mark.parametrize("engine", ["torch", "tf"])
def test_batch_norm_with_statistics_of_a_shard_is_unavailable(engine: str, worker: Any, tmp_path: Path) -> None:
    request = task(tmp_path, MODELS["resnet32"])
    with pytest.raises(EngineUnavailable, match="batch norm"):
        worker(engine).request(calls.prepare(request.job, str(request.weights), request.epoch), TIMEOUT)


def test_replicas_listen_on_the_loopback_interface_only(worker: Any, tmp_path: Path) -> None:
    session, request = worker("torch"), task(tmp_path)
    session.request(calls.prepare(request.job, str(request.weights), request.epoch), TIMEOUT)
    process = psutil.Process(session.pid)
    connections = [connection for one in (process, *process.children()) for connection in one.net_connections()]
    assert connections
    assert {connection.laddr.ip for connection in connections} <= {"127.0.0.1", "::1"}
