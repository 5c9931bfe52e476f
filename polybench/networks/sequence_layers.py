"""The layers of networks for sequences: recurrent layers, and the parts of transformers.

A sequence is (time, features); an image becomes one by `Patches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from polybench.networks.layer_base import LayerBase, Shape, Size, expect_inputs

GATES = ("input", "forget", "cell", "output")
"""The gates of an LSTM in the order of its weights' rows; each gate has as many rows as there are units."""

REVERSE = "reverse_"
"""Prefix of tensor names of an LSTM's backward direction."""


class Embedding(LayerBase, frozen=True, tag="embedding"):
    """A row of a table for each token: (time,) integers to (time, features).

    Only the first layer can be an embedding, because the output of a layer does not consist of tokens.
    """

    is_lookup: ClassVar[bool] = True
    has_product: ClassVar[bool] = True

    name: str
    vocabulary: Size
    features: Size

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.vocabulary, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise ValueError(f"{self.name}: expected a sequence of tokens, got {shape}")
        return (*shape, self.features)


class LSTM(LayerBase, frozen=True, tag="lstm"):
    """Long short-term memory: (time, inputs) to the last output or, with `sequence`, to the output of each
    time.

    From h = c = 0, at each time, with the rows of weights and biases in the order of `GATES`:

        i, f, g, o = W x + b + R h + b'
        c <- s(f) c + s(i) tanh(g)
        h <- s(o) tanh(c)

    W is `weight` (4 units, inputs), R `recurrent` (4 units, units), b `bias`, and b' `recurrent_bias`, which
    exists only with two `biases`: PyTorch has both, Keras and Flux have one. With one bias, PyTorch's second
    bias stays 0. s is 1 / (1 + exp(-x)) or, with `recurrent_activation` "hard_sigmoid", 0.2 x + 0.5 clipped
    to 0 and 1, the default of Keras 2. (Keras 3 uses that name for x / 6 + 0.5.)

    `bidirectional` adds a second LSTM with separate tensors that reads from the end. Its outputs are
    concatenated to those of the first, time by time; its last output is the one at the start of the sequence.

    Hochreiter and Schmidhuber, 1997: https://doi.org/10.1162/neco.1997.9.8.1735; with the forget gate of
    Gers, Schmidhuber and Cummins, 2000: https://doi.org/10.1162/089976600300015015
    """

    has_product: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"inputs": -1}

    name: str
    inputs: Size
    units: Size
    bidirectional: bool = False
    sequence: bool = False
    recurrent_activation: Literal["sigmoid", "hard_sigmoid"] = "sigmoid"
    biases: Literal[1, 2] = 1

    @property
    def directions(self) -> tuple[str, ...]:
        """Prefix of the tensor names of each direction."""
        return ("", REVERSE) if self.bidirectional else ("",)

    def weight_shapes(self) -> dict[str, Shape]:
        rows = len(GATES) * self.units
        shapes: dict[str, Shape] = {"weight": (rows, self.inputs), "recurrent": (rows, self.units)}
        shapes |= {"bias": (rows,)} | ({"recurrent_bias": (rows,)} if self.biases == 2 else {})
        return {direction + part: shape for direction in self.directions for part, shape in shapes.items()}

    def output_shape(self, shape: Shape) -> Shape:
        _expect_sequence(self.name, self.inputs, shape)
        features = len(self.directions) * self.units
        return (shape[0], features) if self.sequence else (features,)

    def macs(self, shape: Shape) -> int:
        rows = shape[0] * len(self.directions) * len(GATES) * self.units
        return rows * (self.inputs + self.units)

    def recurrent_macs(self, shape: Shape) -> int:
        return shape[0] * len(self.directions) * len(GATES) * self.units**2


class MeanOverTime(LayerBase, frozen=True, tag="mean_over_time"):
    """The mean of each feature: (time, features) to (features,)."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2:
            raise ValueError(f"mean_over_time: expected (time, features), got {shape}")
        return shape[1:]


PROJECTIONS = ("query", "key", "value", "output")
"""The dense layers of attention, as the prefixes of their tensors' names."""


class Attention(LayerBase, frozen=True, tag="attention"):
    """Multi-head self-attention: (time, features) to the same shape.

    From q, k, v = x Wq' + bq, x Wk' + bk, x Wv' + bv, each split into `heads` of s = features / heads features:

        y = softmax(q k' / sqrt(s)) v, in each head, over the positions that k and v come from
        output = y Wo' + bo, with the heads side by side in y

    With `causal`, a position only uses itself and earlier ones: the other scores are minus infinity. The tensors are
    `query_weight`, `key_weight`, `value_weight` and `output_weight`, (features, features) each, and, with `bias`,
    `query_bias` and so on. The gradient of `key_bias` is 0: it adds the same number to all scores of a query.

    Vaswani et al., 2017: https://arxiv.org/abs/1706.03762
    """

    has_product: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"features": -1}

    name: str
    features: Size
    heads: Size
    causal: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        if self.features % self.heads:
            raise ValueError(
                f"{self.name}: {self.heads} heads do not divide {self.features} features:"
                f" expected a number of heads such as {_largest_divisor(self.features, self.heads)}"
            )

    def weight_shapes(self) -> dict[str, Shape]:
        weights: dict[str, Shape] = {f"{name}_weight": (self.features, self.features) for name in PROJECTIONS}
        return weights | ({f"{name}_bias": (self.features,) for name in PROJECTIONS} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        _expect_sequence(self.name, self.features, shape)
        return shape

    def macs(self, shape: Shape) -> int:
        return len(PROJECTIONS) * shape[0] * self.features**2 + self.score_macs(shape)

    def score_macs(self, shape: Shape) -> int:
        # With `causal`, half of the scores are masked. They count as well, because most engines compute them.
        return 2 * shape[0] ** 2 * self.features


class Positions(LayerBase, frozen=True, tag="positions"):
    """Adds a trained row of a table to each position of a sequence: row 0 to the first.

    The table has `length` rows; a shorter sequence uses the first ones.
    """

    inferred: ClassVar[Mapping[str, int]] = {"length": 0, "features": -1}

    name: str
    length: Size
    features: Size

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.length, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect_sequence(self.name, self.features, shape)
        if shape[0] > self.length:
            raise ValueError(
                f"{self.name}: the sequence has {shape[0]} positions, but the table {self.length}:"
                f" expected length = {shape[0]} or more"
            )
        return shape


class Patches(LayerBase, frozen=True, tag="patches"):
    """Cuts an image into patches of `size` x `size` pixels and maps each to features: a sequence, row by row.

    The same as a convolution with a stride of `size`, whose outputs become the features of the sequence.

    Dosovitskiy et al., 2020: https://arxiv.org/abs/2010.11929
    """

    has_product: ClassVar[bool] = True
    inferred: ClassVar[Mapping[str, int]] = {"inputs": 0}

    name: str
    inputs: Size
    outputs: Size
    size: Size
    bias: bool = True

    def weight_shapes(self) -> dict[str, Shape]:
        weight = {"weight": (self.outputs, self.inputs, self.size, self.size)}
        return weight | ({"bias": (self.outputs,)} if self.bias else {})

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"{self.name}: expected (channels, height, width), got {shape}")
        expect_inputs(self.name, self.inputs, shape[0], shape)
        if shape[1] % self.size or shape[2] % self.size:
            raise ValueError(
                f"{self.name}: patches of {self.size} x {self.size} do not divide images of {shape[1]} x {shape[2]}"
            )
        return (shape[1] // self.size * (shape[2] // self.size), self.outputs)

    def macs(self, shape: Shape) -> int:
        time, outputs = self.output_shape(shape)
        return time * outputs * self.inputs * self.size**2


class ClassToken(LayerBase, frozen=True, tag="class_token"):
    """Adds one trained position, `token`, before the first: (time, features) to (time + 1, features)."""

    inferred: ClassVar[Mapping[str, int]] = {"features": -1}

    name: str
    features: Size

    def weight_shapes(self) -> dict[str, Shape]:
        return {"token": (self.features,)}

    def output_shape(self, shape: Shape) -> Shape:
        _expect_sequence(self.name, self.features, shape)
        return (shape[0] + 1, self.features)


class FirstPosition(LayerBase, frozen=True, tag="first_position"):
    """The features of the first position, such as those of a class token: (time, features) to (features,)."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2:
            raise ValueError(f"first_position: expected (time, features), got {shape}")
        return shape[1:]


def _expect_sequence(name: str, features: int, shape: Shape) -> None:
    if len(shape) != 2 or shape[1] != features:
        images = "; add a patches layer before it" if len(shape) == 3 else ""
        raise ValueError(f"{name}: expected (time, {features}), got {shape}{images}")


def _largest_divisor(number: int, below: int) -> int:
    return next(divisor for divisor in range(below, 0, -1) if number % divisor == 0)
