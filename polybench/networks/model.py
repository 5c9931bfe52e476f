"""A network: its layers, and the training that its author specified."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polybench.networks.layers import Layer, Named, Shape, check_layer, layer_shapes, state_shapes, walk, weight_shapes
from polybench.networks.optimizers import Optimizer

LabelSmoothing = Annotated[float, Meta(ge=0, lt=1)]


class Model(msgspec.Struct, frozen=True):
    """A network and the training that its author specified.

    The last layer returns logits, (classes,) or, for a prediction at each position of a sequence, (time, classes).
    The loss is the mean cross-entropy of logits, over all inputs and positions; with `label_smoothing` s, the target of
    the label is 1 - s + s / classes, and that of every other class s / classes. `input_shape` is that
    of one image (channels, height, width), of one sequence of features (time, features) or, if the first
    layer is an embedding, of one sequence of tokens (time,). `parity_batch_size` is small enough for the
    float64 reference: about a second per step. `initialization` is Glorot's or He's uniform distribution; see
    `networks.initial_weights`. `published_parameters` is the author's number of trained parameters; a test
    compares it with `parameters()`.
    """

    name: str
    summary: str
    input_shape: Shape
    classes: int
    layers: tuple[Layer, ...]
    batch_size: int
    optimizer: Optimizer
    parity_batch_size: int
    initialization: Literal["glorot", "he"] = "glorot"
    label_smoothing: LabelSmoothing = 0.0
    published_parameters: int | None = None

    def __post_init__(self) -> None:
        names = [layer.name for layer in walk(self.layers) if isinstance(layer, Named)]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: layer names must be unique, got {', '.join(names)}")
        if any(layer.is_lookup for layer in walk(self.layers[1:])):
            raise ValueError(
                f"{self.name}: only the first layer can be an embedding, because it reads the input's tokens"
            )
        earlier: dict[str, Shape] = {}
        for layer in walk(self.layers):
            check_layer(layer, earlier, self.input_shape)
            earlier |= weight_shapes([layer])
        *_, (_, shape) = self.activations()
        if len(shape) > 2 or shape[-1] != self.classes:
            raise ValueError(f"{self.name}: the output has shape {shape}, expected {self.classes} classes")

    @property
    def vocabulary_size(self) -> int | None:
        """Number of tokens; None if the input is not tokens."""
        return getattr(self.layers[0], "vocabulary", None)

    @property
    def label_shape(self) -> Shape:
        """Shape of the labels of one input: () or, for a prediction at each position, (time,)."""
        *_, (_, shape) = self.activations()
        return shape[:-1]

    @property
    def has_norm(self) -> bool:
        """True if layers divide values by their own standard deviation."""
        return any(layer.is_norm for layer in walk(self.layers))

    @property
    def is_random(self) -> bool:
        """True if training draws random numbers, as dropout does."""
        return any(layer.is_random for layer in walk(self.layers))

    @property
    def has_statistics(self) -> bool:
        """True if training changes running statistics: batch norm."""
        return bool(self.state_shapes())

    @property
    def title(self) -> str:
        """The name without what tells networks of one name apart."""
        return self.name.partition("~")[0]

    @property
    def input_kind(self) -> Literal["image", "sequence"]:
        """The noun for one input."""
        return "image" if len(self.input_shape) == 3 else "sequence"

    def without_name(self) -> Model:
        """Return the model without name and description: two equal results compute the same."""
        return msgspec.structs.replace(self, name="", summary="", published_parameters=None)

    def weight_shapes(self) -> dict[str, Shape]:
        """Return the shapes of trained tensors, see `networks.layers.weight_shapes`."""
        return weight_shapes(self.layers)

    def state_shapes(self) -> dict[str, Shape]:
        """Return the shapes of untrained state, see `networks.layers.state_shapes`."""
        return state_shapes(self.layers)

    def tensor_shapes(self) -> dict[str, Shape]:
        """Return the shapes of all tensors in the order of files and hashes: weights, then state."""
        return self.weight_shapes() | self.state_shapes()

    def parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(math.prod(shape) for shape in self.weight_shapes().values())

    def total_parameters(self) -> int:
        """Return the number of trainable parameters and state values."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def activations(self) -> Iterator[tuple[Layer, Shape]]:
        """Iterate over every layer with its output shape for one input, in the order of `layer_shapes`."""
        return ((layer, after) for layer, _, after in layer_shapes(self.layers, self.input_shape))

    def forward_macs(self) -> int:
        """Return the MACs of the forward pass for one image or sequence."""
        return sum(layer.macs(before) for layer, before, _ in layer_shapes(self.layers, self.input_shape))

    def macs(self, pass_: str) -> int:
        """Return the MACs of the pass that is measured, per input."""
        return self.forward_macs() if pass_ == "forward" else self.training_macs()

    def training_macs(self) -> int:
        """Return the MACs of a training step per input: forward, weight gradients and input gradients.

        Each of the three passes has the same number. Images need no gradient, so the first layer with weights has
        only two of the passes, except for what an LSTM computes from its own output.
        """
        shapes = layer_shapes(self.layers, self.input_shape)
        layer, before, _ = next(one for one in shapes if one[0].weight_shapes())
        return 3 * self.forward_macs() - (layer.macs(before) - layer.recurrent_macs(before))
