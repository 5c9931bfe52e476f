from __future__ import annotations

import pytest

from polybench.core.errors import BadInput
from polybench.core.layers import Conv, Dense, MaxPool
from polybench.core.pieces import pieces
from polybench.models import find_model
from polybench.models.single_layer import row_of, single_layer


@pytest.mark.parametrize(
    ("text", "layer", "row"),
    [
        ("conv 3x3 64->64 pad 1 on 56x56", Conv("layer", 64, 64, 3, padding=1), "layer"),
        (
            "conv 7x7 3->64 stride 2 pad 3 no bias relu on 224x224",
            Conv("layer", 3, 64, 7, 2, 3, bias=False),
            "layer + relu",
        ),
        ("dense 512->10 relu", Dense("layer", 512, 10), "layer + relu"),
        ("max_pool 2x2 16 on 28x28", MaxPool(2), "max_pool1"),
    ],
)
def test_a_layer_is_in_a_network_that_gives_it_both_gradients(text: str, layer: object, row: str) -> None:
    model = single_layer(text)
    assert find_model(text) == model
    piece = next(piece for piece in pieces(model) if piece.name == row)
    assert row_of(model) == row
    assert piece.layer == layer
    assert piece.gradients()[0].data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv 3x3 64 on 56x56", "no layer is 'conv 3x3 64'; write one of: conv 3x3"),
        ("conv 3x2 64->64 on 56x56", "no layer is"),
        ("lstm 64->64", "no layer is"),
        ("conv 3x3 64->64", "needs the height and width of its input, not ''"),
        ("conv 3x3 64->64 on 56", "not '56'"),
        (
            "dense 64->10 on 56x56",
            "^'dense 64->10' takes 64 features and no image; leave --input 56x56 out$",
        ),
        ("conv 9x9 3->4 on 5x5", "do not fit into"),
        ("conv 3x3 0->4 on 5x5", "no layer is"),
    ],
)
def test_what_cannot_be_made_says_what_can(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        find_model(text)
