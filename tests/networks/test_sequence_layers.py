"""Records of the layers of transformers and mobile networks, and their network files."""

from __future__ import annotations

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import (
    Attention,
    ClassToken,
    Conv,
    Dense,
    Embedding,
    FirstPosition,
    GroupNorm,
    Layer,
    LayerNorm,
    Patches,
    Positions,
    Shape,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.timed_layers import split_layers
from tests.example_networks import PATCHED, TEXT
from tests.networks.test_network_file import IMAGES, parsed


@pytest.mark.parametrize(
    ("layer", "shape", "output", "macs"),
    [
        (Conv("c", 4, 6, 3, padding=1, groups=2), (4, 5, 5), (6, 5, 5), 2 * 9 * 6 * 25),
        (Dense("d", 5, 7), (3, 5), (3, 7), 3 * 5 * 7),
        (LayerNorm("n", 5), (3, 5), (3, 5), 0),
        (LayerNorm("n", 5), (5,), (5,), 0),
        (GroupNorm("n", 6, 3), (6, 2, 2), (6, 2, 2), 0),
        (Attention("a", 8, 2), (3, 8), (3, 8), 4 * 3 * 64 + 2 * 3 * 3 * 8),
        (Positions("p", 5, 8), (3, 8), (3, 8), 0),
        (Patches("p", 3, 8, 2), (3, 4, 6), (6, 8), 6 * 8 * 12),
        (ClassToken("t", 8), (3, 8), (4, 8), 0),
        (FirstPosition(), (4, 8), (8,), 0),
    ],
)
def test_a_layer_has_its_shape_and_multiply_adds(layer: Layer, shape: Shape, output: Shape, macs: int) -> None:
    assert layer.output_shape(shape) == output
    assert layer.macs(shape) == macs


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Dense("d", 3, 2), (3, 4, 4), "d: expected features or a sequence, got .* add a flatten layer"),
        (LayerNorm("n", 4), (3, 4, 4), "n: layer norm expects a sequence or features"),
        (GroupNorm("n", 4, 2), (3, 4), "n: group norm expects images"),
        (Attention("a", 8, 2), (8, 4, 4), r"a: expected \(time, 8\), got \(8, 4, 4\); add a patches layer before it"),
        (Attention("a", 8, 2), (3, 6), r"a: expected \(time, 8\)"),
        (Positions("p", 5, 8), (6, 8), "p: the sequence has 6 positions, but the table 5: expected length = 6"),
        (Patches("p", 3, 8, 3), (3, 9, 8), "p: patches of 3 x 3 do not divide images of 9 x 8"),
        (Patches("p", 3, 8, 3), (3, 8), r"p: expected \(channels, height, width\)"),
        (ClassToken("t", 8), (8,), r"t: expected \(time, 8\)"),
        (FirstPosition(), (8,), r"first_position: expected \(time, features\)"),
    ],
)
def test_a_layer_rejects_an_input_that_does_not_fit(layer: Layer, shape: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer.output_shape(shape)


def test_a_tied_weight_exists_once_and_counts_once() -> None:
    assert "head.weight" not in TEXT.weight_shapes()
    assert len(initial_weights(TEXT, 0)) == len(TEXT.weight_shapes())
    untied = msgspec.structs.replace(TEXT, layers=(*TEXT.layers[:-1], Dense("head", 8, 11, bias=False)))
    assert untied.parameters() == TEXT.parameters() + 88
    assert split_layers(TEXT)[-1].weight_shapes() == {"embedding.weight": (11, 8)}


def test_attention_has_two_products_more_in_its_input_gradient() -> None:
    layer = next(layer for layer in split_layers(TEXT) if layer.name == "attention")
    forward, both = layer.flops("forward", 2), [gradient.operation for gradient in layer.gradients()]
    gradients = [layer.flops(operation, 2) for operation in both]
    assert forward is not None
    assert sum(flops or 0 for flops in gradients) == 2 * forward
    assert gradients[1] == 2 * 2 * 4 * 7 * 64  # of the four projections only


def test_labels_have_an_axis_for_time_if_there_is_a_prediction_at_each_position() -> None:
    assert (TEXT.label_shape, PATCHED.label_shape) == ((7,), ())


def model_of(*layers: Layer, shape: Shape = (3,), classes: int = 5) -> Model:
    return Model("m", "", shape, classes, layers, 2, Optimizer(), 2)


EMBEDDING = Embedding("embedding", 5, 4)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((EMBEDDING, Dense("head", 4, 5, bias=False, tied="embeding")), "no layer embeding before it has a weight"),
        ((EMBEDDING, Dense("d", 4, 6), Dense("h", 6, 5, bias=False, tied="embedding")), r"is \(5, 4\), but this layer"),
    ],
)
def test_a_network_rejects_a_tie_that_does_not_fit(layers: tuple[Layer, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_of(*layers)


def test_a_causal_mask_on_images_is_rejected() -> None:
    layers = Patches("p", 1, 4, 2), Attention("a", 4, 2, causal=True), FirstPosition(), Dense("d", 4, 5)
    with pytest.raises(ValueError, match="a causal mask needs a sequence in time, but the input is images"):
        model_of(*layers, shape=(1, 4, 4))


TOKENS = 'input = { vocabulary = 5, length = 4 }\nclasses = 5\nlayers = [\n{ type = "embedding", features = 6 },\n'
LAST = '{ type = "dense", outputs = 5 },\n]'
BAD = {
    '{ type = "attention", heads = 4 },\n': "5: attention1: 4 heads do not divide 6 features: expected .* such as 3",
    '{ type = "positions", length = 3 },\n': "5: positions1: the sequence has 4 positions, but the table 3: expected",
    '{ type = "dense", outputs = 6, bias = false, tied = "embedding1" },\n': (
        r"5: dense1: the weight of embedding1 is \(5, 6\), but this layer needs \(6, 6\): expected equal shapes"
    ),
    '{ type = "dense", outputs = 5, tied = "embedding1" },\n': "5: dense1: a tied dense layer has no bias: expected",
    '{ type = "dense", outputs = 5, bias = false, tied = "x" },\n': "5: dense1: no layer x before it has a weight to",
    '{ type = "gelu", approximate = "tan" },\n': "5: unknown approximate 'tan'; did you mean 'tanh'",
}
ON_IMAGES = {
    '{ type = "patches", outputs = 4, size = 2 },\n{ type = "attention", heads = 2, causal = true }': (
        "5: attention1: a causal mask needs a sequence in time, but the input is images: omit causal"
    ),
    '{ type = "attention", heads = 1, features = 3 }': r"4: attention1: expected \(time, 3\), got \(3, 8, 8\); add a",
    '{ type = "conv", outputs = 4, kernel = 1, groups = 2 }': "4: conv1: 2 groups do not divide 3 inputs: expected a",
    '{ type = "conv", outputs = 4, kernel = 1, groups = 3 }': "4: conv1: 3 groups do not divide 4 outputs: expected a",
    '{ type = "group_norm", groups = 2 }': "4: group_norm1: 2 groups do not divide 3 channels: expected a divisor",
    '{ type = "patches", outputs = 4, size = 3 }': "4: patches1: patches of 3 x 3 do not divide images of 8 x 8",
}


@pytest.mark.parametrize("layer", BAD)
def test_an_error_in_a_sequence_names_its_line_and_the_fix(layer: str) -> None:
    with pytest.raises(BadInput, match=f"x.toml:{BAD[layer]}"):
        parsed(TOKENS + layer + LAST)


@pytest.mark.parametrize("layers", ON_IMAGES)
def test_an_error_with_images_names_its_line_and_the_fix(layers: str) -> None:
    with pytest.raises(BadInput, match=f"x.toml:{ON_IMAGES[layers]}"):
        parsed(f"{IMAGES}layers = [\n{layers},\n]")
