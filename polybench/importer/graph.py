"""The graph of a user's program in polybench's layers, and the network that it is.

A framework's translation makes one `Node` per layer. `build` orders the nodes into a network: wherever branches join in
a sum, the layers since their fork become a residual block.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.data.synthetic import image_count
from polybench.errors import BadInput
from polybench.networks.layers import Embedding, Layer, Named, ReLU, ReLU6, Residual, Shape
from polybench.networks.model import Model
from polybench.networks.network_file import network_of, network_table, network_toml
from polybench.networks.optimizers import OPTIMIZERS
from polybench.networks.padding import NO_PADDING, Sides
from polybench.networks.toml_text import TomlText
from polybench.schema.imported import ImportedLayer

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_MAX_NAME = 60
MAX_CLASSES = 256
_BATCH_SIZE = 128
"""Batch size in the network file, unless synthetic data has fewer inputs of this shape."""


class Slot(NamedTuple):
    """A canonical tensor in the user's program: the elements `indices` of the flattened variable of this name."""

    variable: str
    indices: NDArray[np.int64]

    def read(self, variables: Mapping[str, Any]) -> Any:
        """Return the canonical tensor."""
        return np.ravel(variables[self.variable])[self.indices]


class Source(NamedTuple):
    """An operation of the user's program: its name in the framework, the file and line, and a name for its layer."""

    operation: str
    place: str
    name: str = ""

    def error(self, problem: str) -> BadInput:
        """Return an error at this operation."""
        return BadInput(f"{self.place}: {self.operation}: {problem}")


def not_tokens(name: str, count: int) -> BadInput:
    """Return the error of a model of features whose input shape means tokens."""
    return BadInput(
        f"{name}: the input has {count} numbers, which polybench takes for tokens: expected an embedding first, or"
        f" features of shape (1, {count}), --input 1x{count}, and a flatten layer"
    )


def several_outputs(names: Sequence[str]) -> str:
    """Return why a model with outputs of these names is refused."""
    return (
        f"{len(names)} outputs, {', '.join(names)}: expected one, the logits, because a network has one loss: return"
        " only the logits"
    )


_numbers = itertools.count()
"""The order of operations in the program."""


@dataclass(eq=False)
class Node:
    """A layer and its output, of `shape` (canonical, without the batch); with two inputs, their sum.

    `slots` are the tensors of the layer. Without a layer and inputs, it is the input of the network.
    """

    layer: Layer | None
    inputs: tuple[Node, ...]
    shape: Shape
    source: Source
    slots: dict[str, Slot] = field(default_factory=dict)
    problem: str = ""
    """Why it is not a layer by itself."""

    def __post_init__(self) -> None:
        self.fork = _common(self.inputs) if self.inputs else None
        """The last node through which all paths from the network's input pass: its only input, or where the summands
        part."""
        self.depth: int = self.fork.depth + 1 if self.fork else 0
        self.number = next(_numbers)


@dataclass(eq=False)
class Padded(Node):
    """An image with pixels of `value` around it, which the next convolution or pool has as its padding."""

    pads: Sides = NO_PADDING
    value: float = 0.0


def pad(x: Node, pads: Sides, value: float, source: Source) -> Padded:
    """Return an image with padding; BadInput if it is not an image, or becomes smaller."""
    if len(x.shape) != 3 or min(pads) < 0:
        raise source.error(f"pads {x.shape} by {pads}: expected an image, and 0 or more pixels")
    if isinstance(x, Padded) and x.value == value:
        pads = pads.plus(x.pads)
        (x,) = x.inputs
    shape = (x.shape[0], *(length + sum(axis) for length, axis in zip(x.shape[1:], pads.axes, strict=True)))
    problem = "padding is only supported right before a convolution or pool"
    return Padded(None, (x,), shape, source, problem=problem, pads=pads, value=value)


def split_padding(x: Node, value: float) -> tuple[Node, Sides]:
    """Return the image before padding and its sides, for a layer whose own padding has this value.

    Values below those of the image are never the maximum, as zeros after a ReLU. BadInput for other values.
    """
    if not isinstance(x, Padded):
        return x, NO_PADDING
    (image,) = x.inputs
    is_below_all = x.value == -math.inf or (x.value <= 0 and isinstance(image.layer, ReLU | ReLU6))
    if x.value != value and not (value == -math.inf and is_below_all):
        hint = " or, after a ReLU, 0" if value == -math.inf else ""
        raise x.source.error(f"pads with {x.value:g}: expected {value:g}{hint} before the next layer")
    return image, x.pads


def _common(nodes: Sequence[Node]) -> Node:
    first, *others = nodes
    for other in others:
        while first is not other:
            deeper, rest = (first, other) if first.depth >= other.depth else (other, first)
            assert deeper.fork is not None
            first, other = deeper.fork, rest  # noqa: PLW2901 - both walk up
    return first


class Translation(NamedTuple):
    """A user's program as a network: its model, its tensors in the program, and where each layer comes from.

    `notes` tell what differs from the program by convention. With `returns_probabilities`, the program ends in a
    softmax, which is part of the network's loss; with `returns_log_probabilities`, in a log-softmax.
    """

    model: Model
    slots: dict[str, Slot]
    layers: list[ImportedLayer]
    notes: list[str]
    returns_probabilities: bool
    returns_log_probabilities: bool = False

    def check_complete(self, trained: Mapping[str, int]) -> None:
        """Raise BadInput unless the layers use each value of the trained variables, of these sizes, once."""
        for variable, size in trained.items():
            used = [slot.indices.ravel() for slot in self.slots.values() if slot.variable == variable]
            if not used:
                raise BadInput(f"{variable}: the output does not depend on this weight: remove it from the model")
            if not np.array_equal(np.sort(np.concatenate(used)), np.arange(size)):
                raise BadInput(f"{variable}: the layers use some of its values twice or not at all: expected each once")


def build(
    output: Node, start: Node, name: str, notes: Iterable[str] = (), *, returns_probabilities: bool = False
) -> Translation:
    """Order the nodes from the input to the output into a network; BadInput at the first that does not fit."""
    visited: dict[Node, None] = {}
    layers = _between(output, start, visited)
    nodes = list(visited)
    if not layers:
        raise BadInput(f"{name}: the model has no layers")
    if len(output.shape) > 2:
        raise output.source.error(
            f"the output has shape {output.shape}: expected logits, (classes,) or (time, classes)"
        )
    if not 2 <= output.shape[-1] <= MAX_CLASSES:
        raise output.source.error(f"{output.shape[-1]} classes: expected 2 to {MAX_CLASSES} logits")
    if len(start.shape) == 3 and start.shape[0] not in (1, 3):
        raise BadInput(f"{name}: the input has {start.shape[0]} channels: expected images of 1 or 3")
    if len(start.shape) == 1 and not isinstance(layers[0], Embedding):
        raise not_tokens(name, start.shape[0])
    image_count("test", start.shape)  # BadInput if a single input is too large for any data
    model = Model(
        name=name,
        summary="imported",
        input_shape=start.shape,
        classes=output.shape[-1],
        layers=layers,
        batch_size=min(_BATCH_SIZE, image_count("train", start.shape)),
        optimizer=OPTIMIZERS["momentum"],
        parity_batch_size=1,
    )
    table = network_table(model)
    del table["training"]["parity_batch_size"]  # derived from the work of a step
    text = TomlText(name, network_toml(model))
    model = network_of(text, table, default_name=name)
    slots = {
        f"{node.layer.name}.{tensor}": slot
        for node in nodes
        if isinstance(node.layer, Named)
        for tensor, slot in node.slots.items()
    }
    rows = [
        ImportedLayer(
            getattr(node.layer, "name", ""),
            "residual" if node.layer is None else str(node.layer.__struct_config__.tag),
            node.source.operation,
            node.source.place,
        )
        for node in sorted(nodes, key=lambda node: node.number)
    ]
    return Translation(model, slots, rows, list(notes), returns_probabilities)


def _between(end: Node, start: Node, visited: dict[Node, None]) -> tuple[Layer, ...]:
    """Return the layers after `start` up to `end`."""
    layers: list[Layer] = []
    while end is not start:
        if end in visited:
            raise end.source.error("two sums share this operation: expected branches of their own")
        visited[end] = None
        assert end.fork is not None
        if len(end.inputs) > 1:
            branches = [_between(one, end.fork, visited) for one in end.inputs]
            body, shortcut = sorted(branches, key=len, reverse=True)
            if not body:
                raise end.source.error("adds a value to itself: no layer doubles its input")
            layers.append(Residual(body, shortcut))
        elif end.layer is None:
            raise end.source.error(end.problem)
        else:
            layers.append(end.layer)
        end = end.fork
    return tuple(reversed(layers))


class Names:
    """Unique layer names that network files accept; dots count as underscores, because Keras has none."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique(self, name: str, kind: str) -> str:
        """Return the user's name for a layer, or its kind with a number."""
        is_valid = _NAME.fullmatch(name) is not None and len(name) <= _MAX_NAME
        candidate, number = (name, 1) if is_valid else (f"{kind}1", 2)
        while candidate.replace(".", "_") in self._used:
            candidate, number = f"{name if is_valid else kind}{number}", number + 1
        self._used.add(candidate.replace(".", "_"))
        return candidate


def expect_square(source: Source, what: str, values: Sequence[int] | int) -> int:
    """Return the one value of all axes; BadInput if they differ."""
    values = [values] if isinstance(values, int) else list(values)
    if len(set(values)) != 1:
        raise source.error(f"{what} {tuple(values)}: expected the same for height and width")
    return int(values[0])


def tied_owner(owners: Mapping[str, Node], slot: Slot) -> str | None:
    """Return the name of the earlier layer whose weight this slot is; None if it is a new weight."""
    owner = owners.get(slot.variable)
    if owner is None or not isinstance(owner.layer, Named):
        return None
    same = np.array_equal(owner.slots["weight"].indices, slot.indices)
    return owner.layer.name if same else None
