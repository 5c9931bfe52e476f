"""Layers alone: every part computes what the reference computes there."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from polybench.core.job import Job
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalAveragePool,
    MaxPool,
    ReLU,
    Residual,
)
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.pieces import Piece, pieces
from polybench.core.sequence_layers import Embedding
from polybench.core.spec import Workload
from polybench.engines.base import Array, Engine
from polybench.engines.reference.engine import ReferenceEngine
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from tests.engines.lab import Lab, RunCheck, in_process_of
from tests.networks import SEQUENCES

# No flatten, after which Keras has the features in another order.
CHAIN = Model(
    name="chain",
    summary="",
    input_shape=LENET.input_shape,
    classes=10,
    layers=(
        Conv("conv1", 3, 4, 3, stride=2, padding=1, bias=False),
        BatchNorm("norm1", 4),
        ReLU(),
        Conv("conv2", 4, 5, 5, padding="same"),
        ReLU(),
        MaxPool(2),
        ReLU(),
        AveragePool(2),
        GlobalAveragePool(),
        Dense("dense1", 5, 7),
        ReLU(),
        Dense("dense2", 7, 10),
    ),
    batch_size=8,
    optimizer=Optimizer(),
    parity_batch_size=8,
)

called_from_python = pytest.mark.parametrize("engine", ["torch", "tf", "jax"])


@called_from_python
def test_every_part_computes_what_the_reference_does(run_check: RunCheck, engine: str) -> None:
    run_check(engine, every_part_is_right)


@in_process_of("tf")
def test_so_does_every_eager_part(lab: Lab) -> None:
    every_part_is_right(lab, ("eager",))


@called_from_python
def test_so_does_every_part_of_the_layers_of_sequences(run_check: RunCheck, engine: str) -> None:
    run_check(engine, every_part_of_sequences_is_right)


def every_part_of_sequences_is_right(lab: Lab) -> None:
    random, lab = np.random.default_rng(0), copy.copy(lab)  # the process has it for other tests as well
    lab.images = random.integers(0, 11, (1, 8, *SEQUENCES.input_shape), np.int32)
    lab.labels = random.integers(0, SEQUENCES.classes, (1, 8))
    layers = tuple(layer for layer in SEQUENCES.layers if not isinstance(layer, Dropout))
    every_part_is_right(lab, model=msgspec.structs.replace(SEQUENCES, layers=layers))


def every_part_is_right(lab: Lab, variants: tuple[str, ...] = (), model: Model = CHAIN) -> None:
    weights = {name: value + 0.1 for name, value in initial_weights(model, 0).items()}
    reference = ReferenceEngine()
    for engine in (reference, lab.engine):
        build(engine, lab, weights, variants, model=model)
    tensors = iter(reference.layer_tensors(0))
    for piece in pieces(model):
        seen = [next(tensors) for _ in piece.layers]
        layer, last = seen[0], seen[-1]
        expected = {"forward": [last.y]} | ({"activation": [layer.dy]} if piece.activated else {})
        for part, data, own in piece.gradients():
            expected[part] = [layer.dx] * data + list(layer.gradients.values()) * own
        parts = computed(lab.engine, piece, weights, layer.x, last.dy)
        assert set(parts) == set(expected), piece.name
        for part, values in expected.items():
            for value, right in zip(parts[part], values, strict=True):
                np.testing.assert_allclose(
                    value, right, rtol=1e-8, atol=1e-12, err_msg=f"{piece.name} {part}"
                )


@called_from_python
def test_the_sum_of_a_block_is_a_sum(run_check: RunCheck, engine: str) -> None:
    run_check(engine, the_sum_is_a_sum)


def the_sum_is_a_sum(lab: Lab) -> None:
    build(lab.engine, lab, initial_weights(CHAIN, 0))
    x, dy = np.random.default_rng(0).standard_normal((2, 4, 3, 5, 5)).astype(np.float32)
    block = Piece("sum + relu", "block", (Residual(()), ReLU()), (3, 5, 5), wants_data_gradient=True)
    parts = computed(lab.engine, block, {}, x, dy)
    np.testing.assert_allclose(parts["forward"][0], 2 * np.maximum(x, 0), rtol=1e-6)
    np.testing.assert_allclose(parts["activation"][0], dy * (x > 0), rtol=1e-6)
    np.testing.assert_allclose(parts["data gradient"][0], 2 * dy * (x > 0), rtol=1e-6)


@pytest.mark.parametrize("engine", ["torch", "tf"])  # JAX updates a copy, whose memory a step uses up
def test_the_update_is_the_optimizers(run_check: RunCheck, engine: str) -> None:
    run_check(engine, the_update_moves_weights)


@called_from_python
def test_the_step_has_parts_of_its_own(run_check: RunCheck, engine: str) -> None:
    run_check(engine, the_step_has_parts)


def the_step_has_parts(lab: Lab) -> None:
    lab.build()
    parts = lab.engine.replay_step()
    assert set(parts) == {"loss", "update", "call"}
    assert all(one.run(2) > 0 for one in parts.values())


def the_update_moves_weights(lab: Lab) -> None:
    lab.build()
    lab.engine.reset()
    update = lab.engine.replay_step()["update"]
    before = lab.engine.snapshot(0).weights
    update.run(2)
    after = lab.engine.snapshot(0).weights
    # A gradient of 1e-3 in each of two steps, at rate 0.01 and momentum 0.9.
    moved = 0.01 * 1e-3 * (1 + 1.9)
    for name, weight in before.items():
        np.testing.assert_allclose(weight - after[name], moved, rtol=1e-2, err_msg=name)


@in_process_of("tf")
def test_a_gradient_of_tensorflow_does_not_repeat_its_forward_pass(lab: Lab) -> None:
    build(lab.engine, lab, weights := initial_weights(CHAIN, 0))
    for piece in pieces(CHAIN):
        for part, replayed in lab.engine.replay(piece, weights, *noise(piece)).items():
            ran = {kernel.removeprefix("_Mkl").removeprefix("_Fused") for kernel in kernels(replayed.run)}
            forward = ran & {"Conv2D", "MatMul", "MaxPool", "AvgPool", "Relu"}
            if part == "forward":
                assert forward or isinstance(piece.layer, BatchNorm | GlobalAveragePool), ran
            elif isinstance(piece.layer, Dense):  # whose gradients are products as well
                assert forward == {"MatMul"} or part == "activation", ran
            elif isinstance(piece.layer, MaxPool):  # whose forward pass is taken off
                assert forward == {"MaxPool"}, ran
            else:
                assert not forward, (piece.name, part, ran)


@in_process_of("tf")
def test_the_kernels_of_the_parts_are_those_of_the_step(lab: Lab) -> None:
    """In float32, which oneDNN computes: it replaces some operations only beside others."""
    build(lab.engine, lab, weights := initial_weights(CHAIN, 0), dtype="float32")

    def of_layers(run: Callable[[int], Any]) -> set[str]:
        # Padding is a part of the convolution, unless a gradient takes the padded images as well.
        found = {kernel.replace("PadWithConv", "Conv") for kernel in kernels(run)}
        return {kernel for kernel in found if re.search("Conv|Pool|MatMul|Norm|Relu", kernel)}

    in_step = of_layers(lambda _: lab.engine.run_steps(0, 1))
    alone = {
        kernel
        for piece in pieces(CHAIN)
        for replayed in lab.engine.replay(piece, weights, *noise(piece)).values()
        for kernel in of_layers(replayed.run)
    }
    assert alone == in_step, alone ^ in_step


def noise(piece: Piece) -> tuple[Array, Array]:
    """An input and a gradient of the output."""
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((8, *shape)) for shape in (piece.input_shape, piece.output_shape()))
    return x, dy


def kernels(run: Callable[[int], Any]) -> set[str]:
    """The operations that TensorFlow's graphs had when this ran once."""
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    context.context().export_run_metadata()  # forgets what ran before
    run(1)
    graphs = context.context().export_run_metadata().partition_graphs
    return {node.op for graph in graphs for node in graph.node}


@in_process_of("torch")
def test_flop_are_those_that_pytorch_counts(lab: Lab) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if torch.__version__.startswith("2.5."):
        return  # its counter cannot be asked about the gradient of a leaf

    build(lab.engine, lab, weights := initial_weights(CHAIN, 0))
    for piece in pieces(CHAIN):
        x, dy = (np.ones((8, *shape)) for shape in (piece.input_shape, piece.output_shape()))
        for part, replayed in lab.engine.replay(piece, weights, x, dy).items():
            with FlopCounterMode(display=False) as counter:
                replayed.run(1)
            assert (piece.flop(part, 8) or 0) == counter.get_total_flops(), (piece.name, part)


def build(
    engine: Engine,
    lab: Lab,
    weights: Any,
    variants: tuple[str, ...] = (),
    dtype: Literal["float32", "float64"] = "float64",
    model: Model = CHAIN,
) -> None:
    workload = Workload(model.name, "noise", lab.images.shape[1], model.optimizer, "fp32", 2)
    engine.build(Job(model, workload, "cpu", dtype, variants), weights)
    engine.load(lab.images, lab.labels)


def computed(engine: Engine, piece: Piece, weights: Any, x: Array, dy: Array) -> dict[str, list[Array]]:
    """Part -> what it computes, canonical: gradients of the data first, then those of the weights."""
    parts = engine.replay(piece, weights, x, dy)
    found = {part: replayed.run.call() for part, replayed in parts.items()}  # type: ignore[attr-defined]
    of_tensorflow = type(found["forward"]).__module__.startswith("tensorflow")
    gradients = {gradient.part: gradient for gradient in piece.gradients()}

    def canonical(part: str, number: int, value: Any) -> Array:
        if not of_tensorflow:
            return np.asarray(value.detach() if hasattr(value, "detach") else value)
        array = value.numpy() if hasattr(value, "numpy") else table(value)
        if isinstance(piece.layer, Embedding):
            return array
        if part in gradients and number >= gradients[part].data:  # of a weight
            return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array

    return {
        part: [canonical(part, number, value) for number, value in enumerate(flat(value, piece))]
        for part, value in found.items()
    }


def table(slices: Any) -> Array:
    """The gradient of an embedding, of which TensorFlow gives the rows that were taken."""
    rows = np.zeros(slices.dense_shape)
    np.add.at(rows, slices.indices.numpy(), slices.values.numpy())
    return rows


def flat(value: Any, piece: Piece) -> list[Any]:
    """Single tensors; weights that have names in the order of the piece."""
    if isinstance(value, dict):
        return [value[name] for name in piece.weight_shapes()]
    return (
        [one for part in value for one in flat(part, piece)] if isinstance(value, list | tuple) else [value]
    )
