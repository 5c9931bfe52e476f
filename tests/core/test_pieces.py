from __future__ import annotations

import pytest

from polybench.core.arithmetic import training_multiply_adds
from polybench.core.document.layers import Part
from polybench.core.layers import Residual
from polybench.core.model import Model
from polybench.core.pieces import pieces
from polybench.models import MODELS
from tests.networks import EVERYTHING

every_model = pytest.mark.parametrize("model", [*MODELS.values(), EVERYTHING], ids=lambda model: model.name)


def test_a_convolution_and_its_relu_are_one_piece() -> None:
    names = [piece.name for piece in pieces(MODELS["lenet"])]
    assert names == [
        "conv1 + relu", "max_pool1", "conv2 + relu", "max_pool2", "flatten1", "dense1", "dense2", "dense3",
    ]  # fmt: skip


def test_a_relu_that_no_layer_takes_is_a_piece() -> None:
    assert "relu1" in [piece.name for piece in pieces(MODELS["rosetta"])]


def test_a_residual_block_is_named_after_what_is_in_it() -> None:
    found = [piece for piece in pieces(MODELS["resnet32"]) if piece.block == "stage2.block1 + relu"]
    assert [piece.name for piece in found] == [
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
def test_pieces_are_the_layers_in_the_order_of_their_activations(model: Model) -> None:
    layers = [
        (Residual(()) if isinstance(layer, Residual) else layer, shape)
        for layer, shape in model.activations()
    ]
    found = pieces(model)
    assert [layer for piece in found for layer in piece.layers] == [layer for layer, _ in layers]
    shapes = iter(layers)
    for piece in found:
        *_, (_, shape) = [next(shapes) for _ in piece.layers]
        assert piece.output_shape() == shape
    assert len({piece.name for piece in found}) == len(found)


@every_model
def test_weights_are_in_one_piece_each(model: Model) -> None:
    found = [name for piece in pieces(model) for name in piece.weight_shapes()]
    assert found == list(model.weight_shapes())
    for piece in pieces(model):
        in_a_gradient = any(gradient.weights for gradient in piece.gradients())
        assert in_a_gradient == bool(piece.weight_shapes()), piece.name


@every_model
def test_parts_have_the_flop_of_a_training_step(model: Model) -> None:
    parts: list[tuple[int, Part]] = [
        (index, part)
        for index, piece in enumerate(pieces(model))
        for part in ("forward", *(gradient.part for gradient in piece.gradients()))
    ]
    flop = sum(pieces(model)[index].flop(part, batch_size=3) or 0 for index, part in parts)
    assert flop == 2 * 3 * training_multiply_adds(model)
    assert all(piece.flop("activation", 1) is None for piece in pieces(model))


def test_a_convolution_has_to_move_its_input_its_output_and_its_weights() -> None:
    conv2 = pieces(MODELS["lenet"])[2]
    values = 2 * (16 * 14 * 14 + 8 * 10 * 10) + 8 * 16 * 5 * 5 + 8
    assert conv2.compulsory_bytes("forward", 2) == conv2.compulsory_bytes("data gradient", 2) == 4 * values
    assert conv2.compulsory_bytes("activation", 2) is None


def test_the_images_need_no_gradient() -> None:
    first, pool, second, *_ = pieces(MODELS["lenet"])
    assert [gradient.part for gradient in first.gradients()] == ["weight gradient"]
    assert [gradient.part for gradient in second.gradients()] == ["data gradient", "weight gradient"]
    assert [gradient.part for gradient in pool.gradients()] == ["data gradient"]


def test_the_weights_gradient_of_an_lstm_contains_that_of_its_data() -> None:
    _, lstm, *_ = pieces(MODELS["imdb-bilstm"])
    assert lstm.gradients() == [("data gradient", True, False), ("weight gradient", True, True)]
    assert [gradient.contains_data_gradient for gradient in lstm.gradients()] == [False, True]


def test_an_lstm_that_comes_first_has_the_weights_gradient_alone() -> None:
    (gradient,) = pieces(MODELS["char-lstm"])[0].gradients()
    assert gradient == ("weight gradient", False, True)
    assert not gradient.contains_data_gradient


def test_batch_norm_has_one_gradient_of_both() -> None:
    norm = next(piece for piece in pieces(MODELS["resnet32"]) if piece.name == "norm1 + relu")
    assert norm.gradients() == [("data gradient", True, True)]
