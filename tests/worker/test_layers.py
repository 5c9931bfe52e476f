"""Timing of layer operations: their order, subtracted overheads, and garbage-collection time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from polybench.engines.base import Array, LayerTensors, TimedOperation, Weights
from polybench.engines.fake.engine import FakeEngine
from polybench.engines.job import Job
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import LSTM, Dense, Operation
from polybench.networks.lenet import LENET
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.resources import GcStats
from polybench.worker import layers
from polybench.worker.layers import (
    OperationTimer,
    build_network_operations,
    build_standalone_operations,
    write_layer_tensors,
)
from tests import small_datasets
from tests.worker.recorder import uncollected_garbage

WEIGHTS = initial_weights(LENET, 0)


class Recorder(FakeEngine):
    """Records calls. An operation takes 10 s, an empty call 1 s, and garbage collection a tenth of the time."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        self.inputs: dict[str, tuple[Array, Array]] = {}
        self._seconds = 0.0

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        assert list(weights) == list(timed_layer.tensor_shapes())
        self.inputs[timed_layer.name] = x, dy
        return {
            operation: TimedOperation(self._run(f"{timed_layer.name} {operation}", 10.0), self._empty)
            for operation in super().build_layer_operations(timed_layer, weights, x, dy)
        }

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        return {name: TimedOperation(self._run(name, 10.0)) for name in super().build_step_operations()}

    def _run(self, name: str, seconds: float):
        def run(n: int) -> float:
            self.ran.append(name)
            self._seconds += seconds
            return n * seconds

        return run

    def _empty(self, n: int) -> float:
        self.ran.append("empty call")
        return n * 1.0

    def run_gc(self) -> None:
        self.ran.append("gc")

    def gc_stats(self) -> GcStats:
        return GcStats(self._seconds / 10, 0)


@pytest.fixture
def job() -> Job:
    return small_datasets.job(batch_size=6)


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    """Files with the tensors of two images."""
    random = np.random.default_rng(0)
    for index, layer in enumerate(split_layers(LENET)):
        x, dy = (random.random((2, *shape), np.float32) for shape in (layer.input_shape, layer.output_shape()))
        np.savez(tmp_path / f"{index}.npz", x=x, dy=dy)
    return tmp_path


def build_timer(engine: FakeEngine, job: Job, tensors: Path) -> OperationTimer:
    engine.build(job, WEIGHTS)
    return build_network_operations(engine, job, WEIGHTS, tensors)


def test_operations_are_timed_in_the_order_of_a_step(job: Job, tensors: Path) -> None:
    engine = Recorder()
    timer = build_timer(engine, job, tensors)
    engine.ran.clear()
    timer.time(2)
    *ran, last = engine.ran
    assert last == "gc"  # so that whole steps, which are timed next, do not collect this garbage
    first, second = ran[: len(ran) // 2], ran[len(ran) // 2 :]
    assert first == second
    assert first[:3] == ["conv1 + relu forward", "empty call", "max_pool1 forward"]
    middle = first.index("loss")
    assert first[middle - 1 : middle + 4] == [
        "dense3 forward", "loss", "dense3 weight gradient", "dense3 input gradient", "dense2 weight gradient",
    ]  # fmt: skip
    assert first[-4:] == ["conv1 + relu relu gradient", "conv1 + relu weight gradient", "update", "call"]
    assert len(set(first)) == len(first)


class Alive(Recorder):
    """Knows which layers are built when an operation runs."""

    def __init__(self) -> None:
        super().__init__()
        self.built: dict[str, weakref.ref[Array]] = {}
        self.alive: set[tuple[str, ...]] = set()

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        self.built[timed_layer.name] = weakref.ref(x)
        found = super().build_layer_operations(timed_layer, weights, x, dy)
        self.inputs.clear()
        return {name: TimedOperation(self._keeping(one.run, x), one.overhead) for name, one in found.items()}

    def _keeping(self, run: Callable[[int], float], x: Array) -> Callable[[int], float]:
        def keep(n: int) -> float:
            self.alive.add(tuple(name for name, one in self.built.items() if one() is not None))
            return run(n) + 0 * x.size

        return keep


def test_only_one_group_of_a_large_networks_layers_is_built(
    monkeypatch: pytest.MonkeyPatch, job: Job, tensors: Path
) -> None:
    whole = build_timer(Recorder(), job, tensors).time(2)
    monkeypatch.setattr(layers, "_GROUP_BYTES", 6 * 4 * 20_000)
    engine = Alive()
    timer = build_timer(engine, job, tensors)
    assert [one() for one in engine.built.values()] == [None] * 8
    engine.alive.clear()
    engine.ran.clear()
    timed = timer.time(2)
    assert engine.alive == {
        ("conv1 + relu",), ("max_pool1", "conv2 + relu"), ("max_pool2", "flatten1", "dense1", "dense2", "dense3"),
    }  # fmt: skip
    assert engine.ran.index("loss") == engine.ran.index("dense3 forward") + 1
    assert engine.ran.count("loss") == 1 + 2  # once to compile it
    assert sorted(map(str, timed)) == sorted(map(str, whole))
    assert [one() for one in engine.built.values()] == [None] * 8


def test_garbage_is_collected_before_operations_are_timed(job: Job, tensors: Path) -> None:
    class Checking(Recorder):
        def _empty(self, n: int) -> float:
            collected.append(garbage() is None)
            return super()._empty(n)

    collected: list[bool] = []
    with uncollected_garbage() as garbage:
        timer = build_timer(Checking(), job, tensors)
        collected.clear()
        timer.time(1)
    assert set(collected) == {True}


def test_call_overhead_and_garbage_collection_are_subtracted(job: Job, tensors: Path) -> None:
    timed = build_timer(Recorder(), job, tensors).time(3)
    assert {(one.seconds, one.gc_seconds) for one in timed if one.layers} == {(8.0, 1.0)}
    assert {(one.operation, one.seconds) for one in timed if not one.layers} == {
        ("loss", 9.0), ("update", 9.0), ("call", 9.0),
    }  # fmt: skip


def test_on_a_gpu_an_operation_is_repeated_between_two_synchronizations(job: Job, tensors: Path) -> None:
    engine = Recorder()
    timer = build_timer(engine, msgspec.structs.replace(job, device="cuda"), tensors)
    engine.ran.clear()
    timed = timer.time(5)
    assert len(set(engine.ran)) == len(engine.ran)
    # Garbage collection takes 1 s per run of 5 repeats.
    assert [one.seconds for one in timed if one.layers] == pytest.approx([10.0 - 1.0 - 0.2] * 22)


def test_images_are_repeated_to_fill_a_batch(job: Job, tensors: Path) -> None:
    engine = Recorder()
    build_timer(engine, job, tensors)
    for name, arrays in engine.inputs.items():
        for array in arrays:
            assert array.shape[0] == 6, name
            np.testing.assert_array_equal(array[2:], array[:4])


def test_standalone_layers_have_their_own_batch_sizes(job: Job) -> None:
    engine = Recorder()
    engine.build(job, WEIGHTS)
    product = TimedLayer("product", "product", (Dense("product", 8, 8),), (8,), needs_input_gradient=True)
    timer = build_standalone_operations(engine, job, [(product, 8), (split_layers(LENET)[0], 2)])
    assert [array.shape for array in engine.inputs["product"]] == [(8, 8), (8, 8)]
    assert [array.shape for array in engine.inputs["conv1 + relu"]] == [(2, 3, 32, 32), (2, 16, 28, 28)]
    timed = timer.time(1)
    assert [(one.layers, one.operation) for one in timed if one.layers == (0,)] == [
        ((0,), "forward"), ((0,), "weight gradient"), ((0,), "input gradient"),
    ]  # fmt: skip
    assert all(one.layers for one in timed)  # there are no operations of a step


def test_the_time_of_a_contained_gradient_is_subtracted(job: Job) -> None:
    class Contained(Recorder):
        def build_layer_operations(
            self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
        ) -> Mapping[Operation, TimedOperation]:
            return {
                "forward": TimedOperation(self._run("forward", 20.0)),
                "input gradient": TimedOperation(self._run("input gradient", 40.0), self._empty),
                "weight gradient": TimedOperation(self._run("weight gradient", 70.0), self._empty),
            }

    engine = Contained()
    engine.build(job, WEIGHTS)
    lstm = TimedLayer("lstm", "lstm", (LSTM("lstm", 3, 4),), (5, 3), needs_input_gradient=True)
    timed = build_standalone_operations(engine, job, [(lstm, 2)]).time(3)
    # Garbage collection takes a tenth of each, and an empty call 1 s.
    assert {one.operation: (one.seconds, one.gc_seconds) for one in timed} == {
        "forward": (18.0, 2.0), "input gradient": (35.0, 4.0), "weight gradient": (27.0, 3.0),
    }  # fmt: skip


def test_the_reference_writes_the_tensors_of_each_layer(tmp_path: Path) -> None:
    class Reference(FakeEngine):
        def layer_tensors(self, step: int) -> list[LayerTensors]:
            assert step == 0
            return [
                LayerTensors(
                    *np.add.outer(np.arange(0.0, 400.0, 100.0), [number] * 3), {"weight": np.array(float(number))}
                )
                for number, _ in enumerate(LENET.activations())
            ]

    write_layer_tensors(Reference(), small_datasets.job(), tmp_path)
    with np.load(tmp_path / "0.npz") as conv1, np.load(tmp_path / "2.npz") as conv2:
        # The index of the ReLU is 1.
        maxima = {name: array.max() for name, array in conv1.items()}
        assert maxima == {"x": 0, "z": 200, "dy": 101, "dz": 100, "dx": 300, "gradient.weight": 0}
        assert (conv2["x"][0], conv2["dy"][0]) == (3, 104)
        assert conv2["x"].dtype == np.float32
    assert len(list(tmp_path.iterdir())) == len(split_layers(LENET))
