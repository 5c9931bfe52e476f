"""The layers of sequences: of tokens (batch, time), or of features (batch, time, features), in C order."""

from __future__ import annotations

from typing import Literal

from polybench.core.layer_base import LayerBase, Shape

GATES = ("input", "forget", "cell", "output")
"""The order of an LSTM's gates, of which each has as many rows of a weight as there are units."""

REVERSE = "reverse_"
"""What the tensors of the direction that begins at the end have before their names."""


class Embedding(LayerBase, frozen=True, tag="embedding"):
    """A row of a table for each token: (time,) integers from 0 to (time, features).

    Only the first layer can be one: what a layer puts out are no tokens.
    """

    name: str
    vocabulary: int
    features: int

    def weight_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.vocabulary, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise ValueError(f"{self.name} takes a sequence of tokens, and gets {shape}")
        return (*shape, self.features)


class LSTM(LayerBase, frozen=True, tag="lstm"):
    """Long short-term memory: (time, inputs) to the last output, or with `sequence` to that of each time.

    From h = c = 0, at each time, with the rows of weights and biases in the order of `GATES`:

        i, f, g, o = W x + b + R h + b'
        c <- s(f) c + s(i) tanh(g)
        h <- s(o) tanh(c)

    W is `weight` (4 units, inputs), R `recurrent` (4 units, units), b `bias` and b' `recurrent_bias`, which
    is there with two `biases` only: PyTorch has both, Keras and Flux have one. With one, PyTorch's second
    stays 0. s is 1 / (1 + exp(-x)), or with the `recurrent_activation` "hard_sigmoid" 0.2 x + 0.5 between 0
    and 1, the default of Keras 2 (what Keras 3 calls so is x / 6 + 0.5).

    `bidirectional` has a second one, with tensors of its own, that reads from the end. Its outputs come
    behind those of the first, at the same time; its last output is the one at the sequence's beginning.

    Hochreiter and Schmidhuber, 1997: https://doi.org/10.1162/neco.1997.9.8.1735; with the forget gate of
    Gers, Schmidhuber and Cummins, 2000: https://doi.org/10.1162/089976600300015015
    """

    name: str
    inputs: int
    units: int
    bidirectional: bool = False
    sequence: bool = False
    recurrent_activation: Literal["sigmoid", "hard_sigmoid"] = "sigmoid"
    biases: Literal[1, 2] = 1

    @property
    def directions(self) -> tuple[str, ...]:
        """What the names of each direction's tensors begin with."""
        return ("", REVERSE) if self.bidirectional else ("",)

    def weight_shapes(self) -> dict[str, Shape]:
        rows = len(GATES) * self.units
        one: dict[str, Shape] = {"weight": (rows, self.inputs), "recurrent": (rows, self.units)}
        one |= {"bias": (rows,)} | ({"recurrent_bias": (rows,)} if self.biases == 2 else {})
        return {direction + part: shape for direction in self.directions for part, shape in one.items()}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2 or shape[1] != self.inputs:
            raise ValueError(f"{self.name} takes (time, {self.inputs}), and gets {shape}")
        features = len(self.directions) * self.units
        return (shape[0], features) if self.sequence else (features,)

    def multiply_adds(self, time: int) -> tuple[int, int]:
        """Those of the inputs and those of h, forward, for one sequence of this length."""
        once = time * len(self.directions) * len(GATES) * self.units
        return once * self.inputs, once * self.units


class MeanOverTime(LayerBase, frozen=True, tag="mean_over_time"):
    """(time, features) to (features,): the mean of each feature."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 2:
            raise ValueError(f"a mean over time takes (time, features), and gets {shape}")
        return shape[1:]
