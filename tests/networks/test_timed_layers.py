from __future__ import annotations

import pytest

from polybench.networks import MODELS
from polybench.networks.layers import Dense, Layer, Operation, Residual, walk
from polybench.networks.model import Model
from polybench.networks.timed_layers import split_layers
from tests.example_networks import EVERYTHING, PADDED, PATCHED, SEQUENCES, TEXT

every_model = pytest.mark.parametrize(
    "model", [*MODELS.values(), EVERYTHING, SEQUENCES, TEXT, PATCHED, PADDED], ids=lambda model: model.name
)


def test_convolution_and_its_relu_are_one_timed_layer() -> None:
    names = [layer.name for layer in split_layers(MODELS["lenet"])]
    assert names == [
        "conv1 + relu", "max_pool1", "conv2 + relu", "max_pool2", "flatten1", "dense1", "dense2", "dense3",
    ]  # fmt: skip


def test_relu_that_cannot_be_fused_is_a_timed_layer() -> None:
    assert "relu1" in [layer.name for layer in split_layers(MODELS["dlframeworks-cnn"])]


def test_residual_block_is_named_after_its_layers() -> None:
    found = [layer for layer in split_layers(MODELS["resnet32"]) if layer.block == "stage2.block1 + relu"]
    assert [layer.name for layer in found] == [
        "stage2.block1.conv1",
        "stage2.block1.norm1 + relu",
        "stage2.block1.conv2",
        "stage2.block1.norm2",
        "stage2.block1.projection",
        "stage2.block1 + relu (sum)",
    ]
    assert found[-1].layer == Residual(())
    assert found[-1].input_shape == found[-1].output_shape() == (32, 16, 16)


@every_model
def test_timed_layers_are_in_the_order_of_their_activations(model: Model) -> None:
    layers = [(Residual(()) if isinstance(layer, Residual) else layer, shape) for layer, shape in model.activations()]
    found = split_layers(model)
    assert [layer for timed in found for layer in timed.layers] == [_alone(layer) for layer, _ in layers]
    shapes = iter(layers)
    for timed in found:
        *_, (_, shape) = [next(shapes) for _ in timed.layers]
        assert timed.output_shape() == shape
    assert len({layer.name for layer in found}) == len(found)


def _alone(layer: Layer) -> Layer:
    """A tied layer has the shared weight itself."""
    if isinstance(layer, Dense) and layer.tied:
        return Dense(layer.tied, layer.inputs, layer.outputs, bias=False)
    return layer


@every_model
def test_each_weight_belongs_to_one_timed_layer(model: Model) -> None:
    found = [name for layer in split_layers(model) for name in layer.weight_shapes()]
    assert list(dict.fromkeys(found)) == list(model.weight_shapes())
    tied = [layer for layer in walk(model.layers) if isinstance(layer, Dense) and layer.tied]
    assert len(found) == len(model.weight_shapes()) + len(tied)  # alone, a tied layer has the shared weight
    for layer in split_layers(model):
        in_a_gradient = any(gradient.wrt_weights for gradient in layer.gradients())
        assert in_a_gradient == bool(layer.weight_shapes()), layer.name


@every_model
def test_operations_together_have_the_flops_of_a_training_step(model: Model) -> None:
    operations: list[tuple[int, Operation]] = [
        (index, operation)
        for index, layer in enumerate(split_layers(model))
        for operation in ("forward", *(gradient.operation for gradient in layer.gradients()))
    ]
    flops = sum(split_layers(model)[index].flops(one, batch_size=3) or 0 for index, one in operations)
    assert flops == 2 * 3 * model.training_macs()
    assert all(layer.flops("relu gradient", 1) is None for layer in split_layers(model))


def test_convolution_moves_its_input_its_output_and_its_weights() -> None:
    conv2 = split_layers(MODELS["lenet"])[2]
    values = 2 * (16 * 14 * 14 + 8 * 10 * 10) + 8 * 16 * 5 * 5 + 8
    assert conv2.min_bytes_moved("forward", 2) == conv2.min_bytes_moved("input gradient", 2) == 4 * values
    assert conv2.min_bytes_moved("forward", 2, value_bytes=2) == 2 * values
    assert conv2.min_bytes_moved("relu gradient", 2) is None


def test_first_layer_has_no_input_gradient() -> None:
    first, pool, second, *_ = split_layers(MODELS["lenet"])
    assert [gradient.operation for gradient in first.gradients()] == ["weight gradient"]
    assert [gradient.operation for gradient in second.gradients()] == ["input gradient", "weight gradient"]
    assert [gradient.operation for gradient in pool.gradients()] == ["input gradient"]


def test_weight_gradient_of_an_lstm_includes_its_input_gradient() -> None:
    _, lstm, *_ = split_layers(MODELS["imdb-bilstm"])
    assert lstm.gradients() == [("input gradient", True, False), ("weight gradient", True, True)]
    assert [gradient.has_input_gradient for gradient in lstm.gradients()] == [False, True]


def test_first_lstm_has_only_a_weight_gradient() -> None:
    (gradient,) = split_layers(MODELS["char-lstm"])[0].gradients()
    assert gradient == ("weight gradient", False, True)
    assert not gradient.has_input_gradient


def test_batch_norm_has_one_combined_gradient() -> None:
    norm = next(layer for layer in split_layers(MODELS["resnet32"]) if layer.name == "norm1 + relu")
    assert norm.gradients() == [("input gradient", True, True)]
