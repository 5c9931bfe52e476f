"""Padding that differs from the network's: the variant of the network that computes the recorded numbers."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from polybench.engines.reference.network import loss_and_gradients
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import AveragePool, Conv, Dense, Embedding, GlobalAveragePool, Layer, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.trace.forward import SUMMED, Recorded, explain

END = ((0, 1), (0, 1))
CONV = Conv("conv1", 3, 4, 3, 2, 1)
AGAIN = Conv("conv2", 4, 4, 3, 2, 1)
TO_END = "with [[0, 1], [0, 1]] zeros, not 1, as F.pad(x, (0, 1, 0, 1)) before it"
EVEN = Conv("even", 3, 4, 2, 1, END)


def network(*layers: Layer) -> Model:
    return Model(
        "net", "", (3, 12, 12), 3, (*layers, ReLU(), GlobalAveragePool(), Dense("dense", 4, 3)), 4, Optimizer(), 4
    )


@pytest.mark.parametrize(
    ("layers", "changed", "words"),
    [
        ([CONV], {0: END}, f"pads conv1 {TO_END}"),
        ([replace(CONV, padding=END)], {0: 1}, "pads conv1 with 1 zeros, not [[0, 1], [0, 1]]"),
        (
            [EVEN],
            {0: ((1, 0), (1, 0))},
            "pads even with [[1, 0], [1, 0]] zeros, not [[0, 1], [0, 1]], as F.pad(x, (1, 0, 1, 0)) before it",
        ),
        ([CONV, AGAIN], {0: END, 1: END}, f"pads conv1 {TO_END}, and likewise conv2"),
        ([CONV, AGAIN], {1: END}, f"pads conv2 {TO_END}"),
        (
            [CONV, MaxPool(3, 2, 1)],
            {1: END},
            "pads pool 1 with [[0, 1], [0, 1]] pixels, not 1, as F.pad(x, (0, 1, 0, 1), value=-torch.inf) before it",
        ),
        ([CONV, AveragePool(3, 2, 1)], {1: 0}, "pads pool 1 with 0 pixels, not 1"),
    ],
)
def test_the_padding_of_a_trace_is_found(layers: list[Layer], changed: dict[int, object], words: str) -> None:
    trained = [replace(layer, padding=changed.get(at, layer.padding)) for at, layer in enumerate(layers)]
    assert found(network(*layers), network(*trained)) == (words,)


def test_padding_that_counts_in_a_mean_is_found() -> None:
    counting, other = (network(CONV, AveragePool(3, 1, 1, count)) for count in (True, False))
    assert found(counting, other) == ("does not count the padding of pool 1",)
    assert found(other, counting) == ("counts the padding of pool 1",)
    assert found(counting, counting) == ()


def test_a_sum_is_over_the_predictions_at_all_positions() -> None:
    model = Model("net", "", (5,), 6, (Embedding("embedding", 6, 4), Dense("dense", 4, 6)), 4, Optimizer(), 4)
    tokens, labels = np.random.default_rng(0).integers(0, 6, (2, 4, 5))
    weights = {name: value.astype(np.float64) for name, value in initial_weights(model, 0).items()}
    loss, gradients, _ = loss_and_gradients(model, weights, tokens, labels)
    summed = {name: labels.size * gradient for name, gradient in gradients.items()}
    assert explain(Recorded(labels.size * loss, weights, summed, tokens, labels), model).variant.words == (SUMMED,)


def found(model: Model, trained: Model) -> tuple[str, ...]:
    """Return what differs in `trained`, from its loss and gradients in the reference."""
    random = np.random.default_rng(0)
    images, labels = random.random((4, *model.input_shape)), random.integers(0, 3, 4)
    weights = {name: value.astype(np.float64) + 0.1 for name, value in initial_weights(model, 0).items()}
    loss, gradients, _ = loss_and_gradients(trained, weights, images, labels)
    explained = explain(Recorded(loss, weights, gradients, images, labels), model)
    assert explained.explains
    return explained.variant.words
