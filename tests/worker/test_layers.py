"""Layers timed alone: the order, what is taken off, and where the garbage collector's time goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from polybench.core.document.layers import Part
from polybench.core.job import Collected, Job
from polybench.core.layers import Dense
from polybench.core.pieces import Piece, pieces
from polybench.core.sequence_layers import LSTM
from polybench.engines.base import Array, LayerTensors, Replayed, Weights
from polybench.engines.fake.engine import FakeEngine
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from polybench.wire.limit_messages import Alone
from polybench.worker.layers import Layers, alone, of_network, write_layers
from tests import small

WEIGHTS = initial_weights(LENET, 0)


class Recorder(FakeEngine):
    """Writes down what is timed. Seconds go up by one with each part; a collection takes a tenth of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        self.seen: dict[str, tuple[Array, Array]] = {}
        self._seconds = 0.0

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
        assert list(weights) == list(piece.tensor_shapes())
        self.seen[piece.name] = x, dy
        return {
            part: Replayed(self._run(f"{piece.name} {part}", 10.0), self._nothing)
            for part in super().replay(piece, weights, x, dy)
        }

    def replay_step(self) -> Mapping[Part, Replayed]:
        return {part: Replayed(self._run(part, 10.0)) for part in super().replay_step()}

    def _run(self, name: str, seconds: float):
        def run(n: int) -> float:
            self.ran.append(name)
            self._seconds += seconds
            return n * seconds

        return run

    def _nothing(self, n: int) -> float:
        self.ran.append("nothing")
        return n * 1.0

    def collect(self) -> None:
        self.ran.append("collect")

    def collected(self) -> Collected:
        return Collected(self._seconds / 10, 0)


@pytest.fixture
def job() -> Job:
    return small.job(batch_size=6)


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    """Of two images."""
    random = np.random.default_rng(0)
    for index, piece in enumerate(pieces(LENET)):
        x, dy = (
            random.random((2, *shape), np.float32) for shape in (piece.input_shape, piece.output_shape())
        )
        np.savez(tmp_path / f"{index}.npz", x=x, dy=dy)
    return tmp_path


def opened(engine: FakeEngine, job: Job, tensors: Path) -> Layers:
    engine.build(job, WEIGHTS)
    return of_network(engine, job, WEIGHTS, tensors)


def test_parts_are_timed_in_the_order_of_a_step(job: Job, tensors: Path) -> None:
    engine = Recorder()
    layers = opened(engine, job, tensors)
    engine.ran.clear()
    layers.time(2)
    *ran, last = engine.ran
    assert last == "collect"  # what parts leave behind is no part of the whole steps that are timed next
    first, second = ran[: len(ran) // 2], ran[len(ran) // 2 :]
    assert first == second
    assert first[:3] == [
        "conv1 + relu forward",
        "nothing",
        "max_pool1 forward",
    ]  # when it is as warm as parts are
    middle = first.index("loss")
    assert first[middle - 1 : middle + 4] == [
        "dense3 forward", "loss", "dense3 weight gradient", "dense3 data gradient", "dense2 weight gradient",
    ]  # fmt: skip
    assert first[-4:] == ["conv1 + relu activation", "conv1 + relu weight gradient", "update", "call"]
    assert len(set(first)) == len(first)


def test_what_asking_costs_and_what_the_collector_takes_are_taken_off(job: Job, tensors: Path) -> None:
    timed = opened(Recorder(), job, tensors).time(3)
    assert {(one.seconds, one.gc_seconds) for one in timed if one.piece is not None} == {(8.0, 1.0)}
    assert {(one.part, one.seconds) for one in timed if one.piece is None} == {
        ("loss", 9.0), ("update", 9.0), ("call", 9.0),
    }  # fmt: skip


def test_on_a_gpu_a_part_is_repeated_between_two_synchronizations(job: Job, tensors: Path) -> None:
    engine = Recorder()
    layers = opened(engine, msgspec.structs.replace(job, device="cuda"), tensors)
    engine.ran.clear()
    timed = layers.time(5)
    assert len(set(engine.ran)) == len(engine.ran)
    # The recorder's collector takes a second a run, of which each of 5 has its share.
    assert [one.seconds for one in timed if one.piece is not None] == pytest.approx([10.0 - 1.0 - 0.2] * 22)


def test_images_are_repeated_until_there_are_enough(job: Job, tensors: Path) -> None:
    engine = Recorder()
    opened(engine, job, tensors)
    for name, arrays in engine.seen.items():
        for array in arrays:
            assert array.shape[0] == 6, name
            np.testing.assert_array_equal(array[2:], array[:4])


def test_pieces_of_no_network_have_batches_of_their_own(job: Job) -> None:
    engine = Recorder()
    engine.build(job, WEIGHTS)
    product = Piece("product", "product", (Dense("product", 8, 8),), (8,), wants_data_gradient=True)
    layers = alone(engine, job, [Alone(product, 8), Alone(pieces(LENET)[0], 2)])
    assert [array.shape for array in engine.seen["product"]] == [(8, 8), (8, 8)]
    assert [array.shape for array in engine.seen["conv1 + relu"]] == [(2, 3, 32, 32), (2, 16, 28, 28)]
    timed = layers.time(1)
    assert [(one.piece, one.part) for one in timed if one.piece == 0] == [
        (0, "forward"), (0, "weight gradient"), (0, "data gradient"),
    ]  # fmt: skip
    assert all(one.piece is not None for one in timed)  # nothing of a step


def test_a_gradient_that_contains_another_one_is_what_it_takes_beyond(job: Job) -> None:
    class Contained(Recorder):
        def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
            return {
                "forward": Replayed(self._run("forward", 20.0)),
                "data gradient": Replayed(self._run("data gradient", 40.0), self._nothing),
                "weight gradient": Replayed(self._run("weight gradient", 70.0), self._nothing),
            }

    engine = Contained()
    engine.build(job, WEIGHTS)
    lstm = Piece("lstm", "lstm", (LSTM("lstm", 3, 4),), (5, 3), wants_data_gradient=True)
    timed = alone(engine, job, [Alone(lstm, 2)]).time(3)
    # The collector takes a tenth of each, and asking for nothing a second.
    assert {one.part: (one.seconds, one.gc_seconds) for one in timed} == {
        "forward": (18.0, 2.0), "data gradient": (35.0, 4.0), "weight gradient": (27.0, 3.0),
    }  # fmt: skip


def test_the_reference_writes_what_each_piece_sees(tmp_path: Path) -> None:
    class Reference(FakeEngine):
        def layer_tensors(self, step: int) -> list[LayerTensors]:
            assert step == 0
            return [
                LayerTensors(
                    *np.add.outer(np.arange(0.0, 400.0, 100.0), [number] * 3),
                    {"weight": np.array(float(number))},
                )
                for number, _ in enumerate(LENET.activations())
            ]

    write_layers(Reference(), small.job(), tmp_path)
    with np.load(tmp_path / "0.npz") as conv1, np.load(tmp_path / "2.npz") as conv2:
        # The ReLU's number is 1.
        found = {name: array.max() for name, array in conv1.items()}
        assert found == {"x": 0, "z": 200, "dy": 101, "dz": 100, "dx": 300, "gradient.weight": 0}
        assert (conv2["x"][0], conv2["dy"][0]) == (3, 104)
        assert conv2["x"].dtype == np.float32
    assert len(list(tmp_path.iterdir())) == len(pieces(LENET))
