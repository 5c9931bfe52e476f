"""Every network in every engine, checked as `polybench parity` does it: with tiny batches and few steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.core.document.identity import Parity
from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import Dense, MaxPool, walk
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM
from polybench.core.spec import Workload
from polybench.engines import ENGINES
from polybench.identity.check import Checker, Session, Task
from polybench.models.lenet import LENET
from polybench.wire.environment import worker_environment
from polybench.wire.messages import (
    Advanced,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Restart,
    SnapshotTaken,
    TakeSnapshot,
    Train,
    Trained,
)
from polybench.wire.process import WorkerProcess
from polybench.wire.training_messages import GoOn, KeepTraining, TrainingKept
from tests import small
from tests.engines.conftest import SOON_COMPILED
from tests.matrix import COMPILED, COMPILING, EVERYTHING_CELLS, NETWORK_CASES, NETWORKS, SEQUENCES_CELLS
from tests.networks import DROPOUTS, EVERYTHING, FEATURES, SEQUENCES
from tests.sessions import InProcess

TIMEOUT = 240.0
REPOSITORY = Path(__file__).parents[2]

Workers = Callable[[str], WorkerProcess]

every_engine = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "flux" else name for name in EVERYTHING_CELLS],
)
SEQUENCES_NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name == "flux" else name for name in SEQUENCES_CELLS
]
PUBLISHED = [
    pytest.param(
        network,
        name,
        marks=[pytest.mark.slow, *([] if network in COMPILED else [pytest.mark.exhaustive])],
    )
    if name in COMPILING
    else (network, name)
    for network, name in NETWORK_CASES
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """`workers(cell)`: one process for all tests of an engine, or of those of its variants that want the same
    environment; skips the test without the engine.
    """
    folder = tmp_path_factory.mktemp("workers")
    started: dict[frozenset[tuple[str, str]], WorkerProcess] = {}
    with contextlib.ExitStack() as stack:

        def worker(cell: str) -> WorkerProcess:
            engine, *variants = cell.split("+")
            environment = worker_environment(ENGINES[engine], "cpu", 2, tuple(variants)) | SOON_COMPILED
            wanted = frozenset({**environment, "engine": engine}.items())
            if wanted not in started:
                environment |= {"PYTHONPATH": str(REPOSITORY)}
                started[wanted] = stack.enter_context(WorkerProcess(environment, folder / f"{cell}.log"))
            try:
                started[wanted].ask(Load(ENGINES[engine].factory), Loaded, TIMEOUT)
            except Unavailable as missing:
                pytest.skip(missing.reason)
            return started[wanted]

        yield worker


@pytest.fixture(scope="module")
def reference() -> Session:
    return InProcess(ENGINES["reference"].factory)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference trains once for all engines."""
    return tmp_path_factory.mktemp("cache")


Check = Callable[[str, Task], Parity]


@pytest.fixture
def check(workers: Workers, reference: Session, cache: Path, tmp_path: Path) -> Check:
    (scratch := tmp_path / "scratch").mkdir()
    checker = Checker(reference, scratch, cache)
    return lambda name, task: checker.check(workers(name), task)


def task(name: str, model: Model, batch_size: int, steps: int, folder: Path) -> Task:
    files = small.files(folder, small.dataset((steps + 1) * batch_size, model=model), batch_size, model)
    workload = Workload(model.name, "noise", batch_size, model.optimizer, "fp32", 2)
    job = Job(model, workload, "cpu", "float32", tuple(name.split("+")[1:]))
    return Task(job, files.weights, files.epoch, steps, TIMEOUT)


def assert_passes(parity: Parity, model: Model) -> None:
    assert parity.status == "pass", parity.reason
    weights = {tensor.name for tensor in parity.tensors if tensor.kind == "weight"}
    assert weights == set(model.tensor_shapes())


@every_engine
def test_every_layer_and_option_trains_as_in_the_reference(check: Check, name: str, tmp_path: Path) -> None:
    assert_passes(check(name, task(name, EVERYTHING, 4, 3, tmp_path)), EVERYTHING)


@pytest.mark.parametrize("name", SEQUENCES_NAMES)
def test_every_layer_of_sequences_does(check: Check, name: str, tmp_path: Path) -> None:
    parity = check(name, task(name, SEQUENCES, 4, 2, tmp_path))
    assert_passes(parity, SEQUENCES)
    assert parity.algorithm is not None
    assert parity.algorithm.tolerance["gradient"] == 1e-9


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("torch", LSTM("lstm", 4, 6, biases=2)),
        ("tf", LSTM("lstm", 4, 6, recurrent_activation="hard_sigmoid")),
        ("jax", FEATURES.layers[0]),
    ],
)
def test_an_option_of_an_lstm_where_an_engine_has_it(
    check: Check, name: str, layer: LSTM, tmp_path: Path
) -> None:
    outputs = Dense("dense", layer.output_shape((5, 4))[0], 4)
    model = msgspec.structs.replace(FEATURES, layers=(layer, outputs))
    assert_passes(check(name, task(name, model, 4, 1, tmp_path)), model)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("torch", LSTM("lstm", 4, 6, recurrent_activation="hard_sigmoid")),
        ("tf", LSTM("lstm", 4, 6, biases=2)),
        pytest.param("flux", LSTM("lstm", 4, 6, biases=2), marks=pytest.mark.slow),
    ],
)
def test_an_option_that_an_engine_lacks_is_said(check: Check, name: str, layer: LSTM, tmp_path: Path) -> None:
    model = msgspec.structs.replace(FEATURES, layers=(layer, Dense("dense", 6, 4)))
    with pytest.raises(Unavailable, match=r"no lstm with (biases = 2|recurrent_activation = .hard_sigmoid.)"):
        check(name, task(name, model, 4, 1, tmp_path))


@pytest.mark.parametrize(("network", "name"), PUBLISHED)
def test_the_published_networks_do(check: Check, name: str, network: str, tmp_path: Path) -> None:
    model, batch_size, _ = NETWORKS[network]
    parity = check(name, task(name, model, batch_size, 1, tmp_path))
    assert parity.status == "pass", parity.reason
    if not any(isinstance(layer, MaxPool) for layer in walk(model.layers)):
        assert not any("max-pool" in deviation.what for deviation in parity.deviations)


def test_each_precision_is_checked_at_its_own_tolerance(check: Check, tmp_path: Path) -> None:
    fp32 = task("torch", LENET, 8, 1, tmp_path)
    workload = msgspec.structs.replace(fp32.job.workload, precision="bf16")
    bf16 = fp32._replace(job=msgspec.structs.replace(fp32.job, workload=workload))
    one, other = (check("torch", which) for which in (fp32, bf16))
    assert [one.status, other.status] == ["pass", "pass"], (one.reason, other.reason)
    assert one.timed is not None
    assert other.timed is not None
    assert one.timed.tolerance["loss"] < other.timed.tolerance["loss"]


@every_engine
def test_dropout_of_its_own_is_random_starts_over_with_each_build_and_goes_on(
    workers: Workers, name: str, tmp_path: Path
) -> None:
    job, weights, epoch, *_ = task(name, DROPOUTS, 4, 3, tmp_path)
    session = workers(name)

    def losses(seed: int) -> list[float]:
        prepare = Prepare(msgspec.structs.replace(job, seed=seed), str(weights), epoch, warm_up=2)
        return session.ask(prepare, Prepared, TIMEOUT).losses

    assert losses(1) == losses(1)
    assert losses(1)[0] != losses(2)[0]
    goes_on(session, weights, tmp_path / "kept.npz")


def goes_on(session: WorkerProcess, weights: Path, kept: Path) -> None:
    """A training that was kept after two steps has the losses and the weights of one that was not stopped."""

    def train(first: int, n: int) -> float:
        return session.ask(Train(first, n), Trained, TIMEOUT).loss

    def ended() -> tuple[list[float], dict[str, Any]]:
        losses = [train(2, 1), train(3, 2)]
        request = TakeSnapshot(5, str(kept.with_name("g.npz")), str(kept.with_name("w.npz")))
        session.ask(request, SnapshotTaken, TIMEOUT)
        with np.load(request.weights) as tensors:
            return losses, dict(tensors)

    session.ask(Restart(str(weights)), Advanced, TIMEOUT)
    train(0, 2)
    assert session.ask(KeepTraining(str(kept)), TrainingKept, TIMEOUT).why_not == ""
    expected = ended()
    session.ask(Restart(str(weights)), Advanced, TIMEOUT)
    train(0, 1)  # as the warm-up of another process
    session.ask(GoOn(str(kept)), Advanced, TIMEOUT)
    losses, tensors = ended()
    assert losses == pytest.approx(expected[0], rel=1e-6)
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor, expected[1][name], rtol=1e-4, atol=1e-6, err_msg=name)
