"""Hypothesis strategies for networks: every type of layer, with all options, in a valid order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

from polybench.networks.layers import (
    LSTM,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    MeanOverTime,
    ReLU,
    Residual,
    Shape,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS

Draw = Callable[[st.SearchStrategy[object]], object]

_SMALL = st.integers(1, 6)
_UNIT = st.floats(0.01, 0.9)


@st.composite
def networks(draw: st.DrawFn, most: int = 5) -> Model:
    """Draw a network for images, tokens or features, with up to `most` layers before the last ones."""
    names = (f"{prefix}layer{number}" for number in itertools.count(1) for prefix in ("", "a.b-1.")[number % 2 :][:1])
    kind = draw(st.sampled_from(["images", "tokens", "features"]))
    layers: list[Layer] = []
    if kind == "images":
        shape: Shape = (draw(st.sampled_from([1, 3])), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    elif kind == "features":
        shape = (draw(_SMALL), draw(_SMALL))
    else:
        shape = (draw(_SMALL),)
        layers.append(Embedding(next(names), draw(st.integers(1, 50)), draw(_SMALL)))
    given = shape
    for layer in layers:
        shape = layer.output_shape(shape)
    for _ in range(draw(st.integers(0, most))):
        layers.append(draw(_layer(shape, names)))
        shape = layers[-1].output_shape(shape)
    if len(shape) > 1:
        layers.append(Flatten())
        shape = layers[-1].output_shape(shape)
    classes = draw(st.integers(2, 12))
    layers.append(Dense(next(names), shape[0], classes))
    return Model(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)),
        summary=draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=50)),
        input_shape=given,
        classes=classes,
        layers=tuple(layers),
        batch_size=draw(st.integers(1, 2**40)),
        optimizer=OPTIMIZERS[draw(st.sampled_from(sorted(OPTIMIZERS)))],
        parity_batch_size=draw(_SMALL),
        initialization=draw(st.sampled_from(["glorot", "he"])),
    )


@st.composite
def _layer(draw: st.DrawFn, shape: Shape, names: Iterator[str], deep: int = 0) -> Layer:
    """Draw a layer that accepts this shape."""
    return draw(st.one_of([make(shape, names, deep) for make in _THAT_TAKE[len(shape)]]))


def _anything(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    return st.just(ReLU()) | st.builds(lambda rate: Dropout(next(names), rate), _UNIT)


def _conv(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    def build(outputs: int, bias: bool, form: tuple[int, int, object]) -> Layer:
        kernel, stride, padding = form
        return Conv(next(names), shape[0], outputs, kernel, stride, padding, bias)

    forms = [(1, 1, "valid"), (1, 2, 0), (3, 1, "same"), (3, 2, 1), (2, 1, 2), (5, 1, "same")]
    return st.builds(build, _SMALL, st.booleans(), st.sampled_from(forms))


def _pool(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    size = st.integers(1, min(shape[1:]))
    return st.builds(MaxPool, size, st.integers(0, 3)) | st.builds(AveragePool, size, st.integers(0, 3))


def _batch_norm(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    return st.builds(lambda *options: BatchNorm(next(names), shape[0], *options), _UNIT, _UNIT)


def _residual(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    """Draw a body that keeps the shape, or a body and a shortcut with equal output shapes."""
    if deep > 1:
        return st.just(ReLU())
    inside = _residual(shape, names, deep + 1)
    if len(shape) != 3:
        return st.builds(lambda one: Residual((ReLU(), one)), inside)

    def build(outputs: int, one: Layer) -> Layer:
        body = Conv(next(names), one.output_shape(shape)[0], outputs, 1)
        return Residual((one, body), (Conv(next(names), shape[0], outputs, 1),))

    return st.builds(build, _SMALL, inside)


def _lstm(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    def build(*options: object) -> Layer:
        return LSTM(next(names), shape[1], *options)  # type: ignore[arg-type]

    activations = st.sampled_from(["sigmoid", "hard_sigmoid"])
    return st.builds(build, _SMALL, st.booleans(), st.booleans(), activations, st.sampled_from([1, 2]))


def _dense(shape: Shape, names: Iterator[str], deep: int) -> st.SearchStrategy[Layer]:
    return st.builds(lambda outputs: Dense(next(names), shape[0], outputs), _SMALL)


def _only(layer: Layer) -> Callable[[Shape, Iterator[str], int], st.SearchStrategy[Layer]]:
    return lambda shape, names, deep: st.just(layer)


_THAT_TAKE = {
    3: (_anything, _conv, _pool, _batch_norm, _residual, _only(GlobalAveragePool()), _only(Flatten())),
    2: (_anything, _lstm, _residual, _only(MeanOverTime()), _only(Flatten())),
    1: (_anything, _dense, _batch_norm, _residual, _only(Flatten())),
}
"""Strategies for layers by number of input axes."""
