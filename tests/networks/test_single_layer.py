from __future__ import annotations

import pytest

from polybench.errors import BadInput
from polybench.networks import find_model
from polybench.networks.layers import Attention, Conv, Dense, MaxPool
from polybench.networks.single_layer import single_layer, timed_layer_name
from polybench.networks.timed_layers import split_layers


@pytest.mark.parametrize(
    ("text", "layer", "name"),
    [
        ("conv 64->64 3x3 pad 1 on 56x56", Conv("layer", 64, 64, 3, padding=1), "layer"),
        ("conv 3x3 64->64 pad 1 on 56x56", Conv("layer", 64, 64, 3, padding=1), "layer"),
        ("conv 64->64 3x3 depthwise on 56x56", Conv("layer", 64, 64, 3, padding=0, groups=64), "layer"),
        ("conv groups 4 8->16 1x1 stride 2 on 9x9", Conv("layer", 8, 16, 1, 2, padding=0, groups=4), "layer"),
        ("dense 512->10 no bias", Dense("layer", 512, 10, bias=False), "layer"),
        (
            "conv 7x7 3->64 stride 2 pad 3 no bias relu on 224x224",
            Conv("layer", 3, 64, 7, 2, 3, bias=False),
            "layer + relu",
        ),
        ("dense 512->10 relu", Dense("layer", 512, 10), "layer + relu"),
        ("max_pool 2x2 16 on 28x28", MaxPool(2), "max_pool1"),
        ("attention 8 heads 512 causal on 256", Attention("layer", 512, 8, causal=True), "layer"),
        ("attention 1 head 4 no bias on 3", Attention("layer", 4, 1, bias=False), "layer"),
    ],
)
def test_layer_is_built_into_a_network_that_needs_both_its_gradients(text: str, layer: object, name: str) -> None:
    model = single_layer(text)
    assert find_model(text) == model
    timed_layer = next(one for one in split_layers(model) if one.name == name)
    assert timed_layer_name(model) == name
    assert timed_layer.layer == layer
    assert timed_layer.gradients()[0].wrt_input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv 3x3 64 on 56x56", "invalid layer 'conv 3x3 64': expected one of: conv 64"),
        ("conv 3x2 64->64 on 56x56", "invalid layer"),
        ("lstm 64->64", "invalid layer"),
        ("conv 3x3 64->64", "invalid shape '' of 'conv 3x3 64->64': expected height and width"),
        ("conv 3x3 64->64 on 56", "invalid shape '56'"),
        ("dense 64->10 on 56x56", "^'dense 64->10' takes 64 features, not an image: remove --shape 56x56$"),
        ("dense 64->10 on 64", "^'dense 64->10' takes 64 features, not an image: remove --shape 64$"),
        ("conv 8->12 3x3 groups 5 on 9x9", "layer: 5 groups do not divide 8 inputs: expected a divisor of it"),
        ("conv 8->8 3x3 groups 2 depthwise on 9x9", "invalid layer"),
        ("conv 8->8 3x3 3x3 on 9x9", "invalid layer"),
        ("conv 8->8 3x3 stride 0 on 9x9", "invalid layer"),
        ("conv 8->8 3x3 dilation 2 on 9x9", "invalid layer"),
        ("max_pool 8 2x2 relu on 9x9", "invalid layer"),
        ("conv 9x9 3->4 on 5x5", "do not fit into"),
        ("conv 3x3 0->4 on 5x5", "invalid layer"),
        ("attention 8 heads 512", "invalid shape '' of 'attention 8 heads 512': expected a number of positions"),
        ("attention 8 heads 512 on 5x5", "invalid shape '5x5'"),
        ("attention 3 heads 512 on 5", "layer: 3 heads do not divide 512 features"),
        ("attention 0 heads 512 on 5", "invalid layer"),
    ],
)
def test_invalid_layer_is_rejected_with_the_expected_syntax(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        find_model(text)
