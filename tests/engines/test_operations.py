"""Separately built operations of layers and steps: comparison with the reference."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np

from polybench.engines.base import Array, Engine
from polybench.engines.job import Job
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.program import import_program
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import (
    Attention,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
    Residual,
)
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.options import Workload
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.example_networks import PADDED, PATCHED, SEQUENCES, TEXT

# Without a flatten, after which Keras orders the features differently.
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

timed_from_python = in_process_of("torch", "tf", "jax")


@timed_from_python
def test_every_operation_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations(fixture)


@timed_from_python
def test_operations_in_bf16_compute_in_bf16(fixture: EngineFixture) -> None:
    """Layers get bf16 from each other, as in a step, and the gradients of weights are float32."""
    weights = {name: value + 0.1 for name, value in initial_weights(CHAIN, 0).items()}
    workload = Workload(CHAIN.name, "noise", fixture.images.shape[1], CHAIN.optimizer, "bf16", 2)
    fixture.engine.build(Job(CHAIN, workload, "cpu", "float32"), weights)
    fixture.engine.load(fixture.images, fixture.labels)
    for timed_layer in split_layers(CHAIN):
        x, dy = (array.astype(np.float32) for array in noise(timed_layer))
        operations = fixture.engine.build_layer_operations(timed_layer, weights, x, dy)
        dtypes = {
            operation: re.findall(r"b?float\d+", str([value.dtype for value in flatten(timed.run.call(), timed_layer)]))  # type: ignore[attr-defined]
            for operation, timed in operations.items()
        }
        expected = {"forward": ["bfloat16"]} | ({"relu gradient": ["bfloat16"]} if timed_layer.has_relu else {})
        for operation, wrt_input, wrt_weights in timed_layer.gradients():
            trained = ["float32"] * len(timed_layer.weight_shapes())
            expected[operation] = ["bfloat16"] * wrt_input + trained * wrt_weights
        assert dtypes == expected, (timed_layer.name, dtypes)


@in_process_of("torch")
def test_in_bf16_only_the_first_layer_gets_float32(fixture: EngineFixture) -> None:
    from torch.nn.modules.module import register_module_forward_pre_hook

    weights = initial_weights(CHAIN, 0)
    workload = Workload(CHAIN.name, "noise", fixture.images.shape[1], CHAIN.optimizer, "bf16", 2)
    fixture.engine.build(Job(CHAIN, workload, "cpu", "float32"), weights)
    inputs: list[list[str]] = []
    for timed_layer in split_layers(CHAIN):
        inputs.append([])
        hook = register_module_forward_pre_hook(lambda _, given: inputs[-1].append(str(given[0].dtype)))
        x, dy = (array.astype(np.float32) for array in noise(timed_layer))
        fixture.engine.build_layer_operations(timed_layer, weights, x, dy)
        hook.remove()
    first, *others = ({*dtypes} for dtypes in inputs)
    assert first == {"torch.float32"}
    assert others == [{"torch.bfloat16"}] * len(others)


@timed_from_python
def test_a_forward_pass_normalizes_with_running_statistics(fixture: EngineFixture) -> None:
    layer = BatchNorm("norm", 3)
    model = msgspec.structs.replace(CHAIN, layers=(layer, GlobalAveragePool(), Dense("dense", 3, 10)))
    weights = {name: value + np.float32(0.1) for name, value in initial_weights(model, 0).items()}
    workload = Workload(model.name, "noise", fixture.images.shape[1], model.optimizer, "fp32", 2, pass_="forward")
    fixture.engine.build(Job(model, workload, "cpu", "float64"), weights)
    (timed_layer, *_), x = split_layers(model), fixture.images[0].astype(np.float64)
    (actual,) = run_operations(fixture.engine, timed_layer, weights, x, x)["forward"]
    tensors = ("weight", "bias", "running_mean", "running_variance")
    weight, bias, mean, variance = (weights[f"norm.{tensor}"].astype(float)[:, None, None] for tensor in tensors)
    expected = weight * (x - mean) / np.sqrt(variance + layer.epsilon) + bias
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


@in_process_of("tf")
def test_every_eager_operation_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations(fixture, ("eager",))


sequences_timed_from_python = in_process_of("torch", "tf", "jax")


@sequences_timed_from_python
def test_every_operation_of_sequence_layers_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations_on_noise(fixture, SEQUENCES)


@sequences_timed_from_python
def test_every_operation_of_a_decoder_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations_on_noise(fixture, TEXT)


@sequences_timed_from_python
def test_every_operation_of_a_vision_transformer_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations_on_noise(fixture, PATCHED)


@timed_from_python
def test_every_operation_with_padding_equals_the_reference(fixture: EngineFixture) -> None:
    check_operations_on_noise(fixture, PADDED)


def check_operations_on_noise(fixture: EngineFixture, model: Model) -> None:
    """Check the network without its dropout layers, on random inputs of its own shape."""
    random, fixture = np.random.default_rng(0), copy.copy(fixture)  # other tests in this process use the original
    shape = (1, 8, *model.input_shape)
    is_text = model.vocabulary_size is not None
    fixture.images = random.integers(0, model.vocabulary_size, shape, np.int32) if is_text else random.random(shape)
    fixture.labels = random.integers(0, model.classes, (1, 8, *model.label_shape))
    layers = tuple(layer for layer in model.layers if not isinstance(layer, Dropout))
    check_operations(fixture, model=msgspec.structs.replace(model, layers=layers))


def check_operations(fixture: EngineFixture, variants: tuple[str, ...] = (), model: Model = CHAIN) -> None:
    weights = {name: value + 0.1 for name, value in initial_weights(model, 0).items()}
    reference = ReferenceEngine()
    for engine in (reference, fixture.engine):
        build(engine, fixture, weights, variants, model=model)
    tensors = iter(reference.layer_tensors(0))
    for timed_layer in split_layers(model):
        recorded = [next(tensors) for _ in timed_layer.layers]
        layer, last = recorded[0], recorded[-1]
        expected = {"forward": [last.y]} | ({"relu gradient": [layer.dy]} if timed_layer.has_relu else {})
        for operation, wrt_input, wrt_weights in timed_layer.gradients():
            expected[operation] = [layer.dx] * wrt_input + list(layer.gradients.values()) * wrt_weights
        results = run_operations(fixture.engine, timed_layer, weights, layer.x, last.dy)
        assert set(results) == set(expected), timed_layer.name
        for operation, values in expected.items():
            case = f"{timed_layer.name} {operation}"
            for value, correct in zip(results[operation], values, strict=True):
                np.testing.assert_allclose(value, correct, rtol=1e-8, atol=1e-12, err_msg=case)


@timed_from_python
def test_the_sum_of_a_residual_block_is_correct(fixture: EngineFixture) -> None:
    build(fixture.engine, fixture, initial_weights(CHAIN, 0))
    x, dy = np.random.default_rng(0).standard_normal((2, 4, 3, 5, 5)).astype(np.float32)
    block = TimedLayer("sum + relu", "block", (Residual(()), ReLU()), (3, 5, 5), needs_input_gradient=True)
    results = run_operations(fixture.engine, block, {}, x, dy)
    np.testing.assert_allclose(results["forward"][0], 2 * np.maximum(x, 0), rtol=1e-6)
    np.testing.assert_allclose(results["relu gradient"][0], dy * (x > 0), rtol=1e-6)
    np.testing.assert_allclose(results["input gradient"][0], 2 * dy * (x > 0), rtol=1e-6)


@timed_from_python
def test_dropout_scales_outputs_and_gradients_alike(fixture: EngineFixture) -> None:
    check_dropout(fixture)


@in_process_of("tf")
def test_eager_dropout_scales_outputs_and_gradients_alike(fixture: EngineFixture) -> None:
    check_dropout(fixture, "eager")


def check_dropout(fixture: EngineFixture, *variants: str) -> None:
    build(fixture.engine, fixture, initial_weights(CHAIN, 0), variants, dtype="float32")
    dropout = TimedLayer("dropout", "dropout", (Dropout("dropout", 0.25),), (64,), needs_input_gradient=True)
    x = np.ones((4, 64), np.float32)
    results = run_operations(fixture.engine, dropout, {}, 3 * x, 6 * x)
    assert {operation: np.unique(values[0]).tolist() for operation, values in results.items()} == {
        "forward": [0.0, 4.0],
        "input gradient": [0.0, 8.0],
    }


@timed_from_python
def test_the_step_has_loss_update_and_call(fixture: EngineFixture) -> None:
    fixture.build()
    operations = fixture.engine.build_step_operations()
    assert set(operations) == {"loss", "update", "call"}
    assert all(operation.run(2) > 0 for operation in operations.values())


@in_process_of("torch", "tf")  # JAX updates a copy, whose memory each update donates
def test_the_update_operation_updates_the_weights(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.reset()
    update = fixture.engine.build_step_operations()["update"]
    before = fixture.engine.snapshot(0).weights
    update.run(2)
    after = fixture.engine.snapshot(0).weights
    # Two steps with a gradient of 1e-3, learning rate 0.01 and momentum 0.9.
    change = 0.01 * 1e-3 * (1 + 1.9)
    for name, weight in before.items():
        np.testing.assert_allclose(weight - after[name], change, rtol=1e-2, err_msg=name)


@in_process_of("tf")
def test_tensorflow_gradients_do_not_repeat_the_forward_pass(fixture: EngineFixture) -> None:
    build(fixture.engine, fixture, weights := initial_weights(CHAIN, 0))
    for timed_layer in split_layers(CHAIN):
        operations = fixture.engine.build_layer_operations(timed_layer, weights, *noise(timed_layer))
        for operation, timed in operations.items():
            executed = {kernel.removeprefix("_Mkl").removeprefix("_Fused") for kernel in kernels(timed.run)}
            forward = executed & {"Conv2D", "MatMul", "MaxPool", "AvgPool", "Relu"}
            if operation == "forward":
                assert forward or isinstance(timed_layer.layer, BatchNorm | GlobalAveragePool), executed
            elif isinstance(timed_layer.layer, Dense):  # its gradients are also products
                assert forward == {"MatMul"} or operation == "relu gradient", executed
            elif isinstance(timed_layer.layer, MaxPool):  # its forward pass is subtracted
                assert forward == {"MaxPool"}, executed
            else:
                assert not forward, (timed_layer.name, operation, executed)


@in_process_of("tf")
def test_separate_operations_use_the_kernels_of_the_step(fixture: EngineFixture) -> None:
    """Compare in float32, for which oneDNN fuses some adjacent operations."""
    build(fixture.engine, fixture, weights := initial_weights(CHAIN, 0), dtype="float32")

    def layer_kernels(run: Callable[[int], Any]) -> set[str]:
        # The convolution includes padding, unless a gradient also needs the padded images.
        executed = {kernel.replace("PadWithConv", "Conv") for kernel in kernels(run)}
        return {kernel for kernel in executed if re.search("Conv|Pool|MatMul|Norm|Relu", kernel)}

    in_step = layer_kernels(lambda _: fixture.engine.run_steps(0, 1))
    separate = {
        kernel
        for timed_layer in split_layers(CHAIN)
        for timed in fixture.engine.build_layer_operations(timed_layer, weights, *noise(timed_layer)).values()
        for kernel in layer_kernels(timed.run)
    }
    assert separate == in_step, separate ^ in_step


def noise(timed_layer: TimedLayer) -> tuple[Array, Array]:
    """Make a random input and a random gradient of the output."""
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((8, *shape)) for shape in (timed_layer.input_shape, timed_layer.output_shape()))
    return x, dy


def kernels(run: Callable[[int], Any]) -> set[str]:
    """Operations in the TensorFlow graphs that one run executes."""
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    context.context().export_run_metadata()  # discards earlier runs
    run(1)
    graphs = context.context().export_run_metadata().partition_graphs
    return {node.op for graph in graphs for node in graph.node}


@in_process_of("torch")
def test_flops_equal_those_that_pytorch_counts(fixture: EngineFixture) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if torch.__version__.startswith("2.5."):
        return  # its counter does not support the gradient of a leaf

    build(fixture.engine, fixture, weights := initial_weights(CHAIN, 0))
    for timed_layer in split_layers(CHAIN):
        x, dy = (np.ones((8, *shape)) for shape in (timed_layer.input_shape, timed_layer.output_shape()))
        for operation, timed in fixture.engine.build_layer_operations(timed_layer, weights, x, dy).items():
            with FlopCounterMode(display=False) as counter:
                timed.run(1)
            flops = timed_layer.flops(operation, 8) or 0
            assert flops == counter.get_total_flops(), (timed_layer.name, operation)


def build(
    engine: Engine,
    fixture: EngineFixture,
    weights: Any,
    variants: tuple[str, ...] = (),
    dtype: Literal["float32", "float64"] = "float64",
    model: Model = CHAIN,
) -> None:
    workload = Workload(model.name, "noise", fixture.images.shape[1], model.optimizer, "fp32", 2)
    engine.build(Job(model, workload, "cpu", dtype, variants), weights)
    engine.load(fixture.images, fixture.labels)


def run_operations(
    engine: Engine, timed_layer: TimedLayer, weights: Any, x: Array, dy: Array
) -> dict[str, list[Array]]:
    """Return the results of each operation in the canonical layout: the input gradient, then weight gradients."""
    operations = engine.build_layer_operations(timed_layer, weights, x, dy)
    results = {operation: timed.run.call() for operation, timed in operations.items()}  # type: ignore[attr-defined]
    is_tensorflow = type(results["forward"]).__module__.startswith("tensorflow")
    first_weight = {gradient.operation: int(gradient.wrt_input) for gradient in timed_layer.gradients()}

    def canonical(operation: str, result: Any) -> list[Array]:
        arrays = [to_array(value) for value in flatten(result, timed_layer)]
        split = first_weight.get(operation, len(arrays))
        activations, weights = arrays[:split], arrays[split:]
        if not is_tensorflow:
            return activations + separate_weights(weights, timed_layer.layer)
        channels_first = [array.transpose(0, 3, 1, 2) if array.ndim == 4 else array for array in activations]
        return channels_first + keras_weights(weights, timed_layer)

    return {operation: canonical(operation, result) for operation, result in results.items()}


def to_array(value: Any) -> Array:
    if hasattr(value, "dense_shape"):  # TensorFlow's sparse gradient of an embedding
        rows = np.zeros(value.dense_shape)
        np.add.at(rows, value.indices.numpy(), value.values.numpy())
        return rows
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def separate_weights(values: list[Array], layer: Layer) -> list[Array]:
    """Split PyTorch's joint tensors of query, key and value; weights come before biases."""
    if not isinstance(layer, Attention):
        return values
    parts = [part for value in values for part in np.split(value, len(value) // layer.features)]
    return sorted(parts, key=lambda part: -part.ndim)


def keras_weights(values: list[Array], timed_layer: TimedLayer) -> list[Array]:
    """Convert the tensors of a Keras layer; attention has each bias after its weight."""
    if isinstance(timed_layer.layer, Attention) and timed_layer.layer.bias:
        values = values[::2] + values[1::2]
    if not values:
        return []
    program = import_program(layer_program([timed_layer.layer], timed_layer.input_shape, "float64"), None)
    [views] = program.VIEWS.values()
    tensors = (name.rpartition(".")[2] for name in timed_layer.weight_shapes())
    return [views[tensor](value) for tensor, value in zip(tensors, values, strict=True)]


def flatten(value: Any, timed_layer: TimedLayer) -> list[Any]:
    """Flatten nested results to a list of tensors, named weights in the order of the layer."""
    if isinstance(value, dict):
        return [value[name] for name in timed_layer.weight_shapes()]
    return (
        [tensor for item in value for tensor in flatten(item, timed_layer)]
        if isinstance(value, list | tuple)
        else [value]
    )
