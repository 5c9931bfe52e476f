"""A network in plain Keras: a functional model, channels last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from polybench.engines.shared.keras_layout import flattened_shapes, keras_padding, tables, to_keras
from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.padding import Sides
from polybench.networks.sequence_layers import PROJECTIONS
from polybench.networks.source_text import attributes, escape
from polybench.scripts.network_code import Code

_IMPORTS = '''"""{name} in plain Keras, with the weights in the file beside this one."""

from pathlib import Path

import keras
import numpy as np
from keras import layers

'''
_NETWORK = """{classes}inputs = keras.Input({shape}{dtype})
x = inputs
{body}
network = keras.Model(inputs, x)

with np.load(Path(__file__).with_suffix(".npz")) as weights:
    for layer in network.layers:
        layer.set_weights([weights[f"{{layer.name}}/{{number}}"] for number in range(len(layer.weights))])
"""


_CLASSES = {
    "Positions": """class Positions(layers.Layer):
    def __init__(self, length, name):
        super().__init__(name=name)
        self.length = length

    def build(self, shape):
        self.weight = self.add_weight((self.length, shape[-1]), name="weight")

    def call(self, x):
        return x + self.weight[: x.shape[1]]
""",
    "ClassToken": """class ClassToken(layers.Layer):
    def build(self, shape):
        self.token = self.add_weight((shape[-1],), name="token")

    def call(self, x):
        token = keras.ops.broadcast_to(self.token, (keras.ops.shape(x)[0], 1, x.shape[2]))
        return keras.ops.concatenate([token, x], axis=1)
""",
    "TiedDense": """class TiedDense(layers.Layer):
    def __init__(self, owner, name):
        super().__init__(name=name)
        self.owner = owner

    def call(self, x):
        if isinstance(self.owner, layers.Embedding):
            return keras.ops.matmul(x, keras.ops.transpose(self.owner.embeddings))
        return keras.ops.matmul(x, self.owner.kernel)
""",
}
"""Classes by name, for what Keras has no layer for."""


_AUTOMATIC = re.compile(
    r"(activation|add|average_pooling2d|flatten|gelu|get_item|global_average_pooling[12]d|input_layer|max_pooling2d"
    r"|re_lu|reshape|zero_padding2d)(_\d+)?"
)
"""Names that Keras gives to what the program leaves without one; a model cannot have two of a name."""


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the model's code, and its layers' weights in Keras's order and layout: `LAYER/0` and so on."""
    names = attributes(_names(model), lambda name: bool(_AUTOMATIC.fullmatch(name)))
    channels, *spatial = model.input_shape
    shape = (*spatial, channels) if len(spatial) == 2 else model.input_shape
    network = _NETWORK.format(
        classes="".join(f"{_CLASSES[kind]}\n\n" for kind in _CLASSES if kind in _kinds(model)),
        shape=shape,
        dtype=', dtype="int32"' if model.vocabulary_size else "",
        body="\n".join(_sequence(model.layers, model.input_shape, "x", 0, names, _owners(model))),
    )
    flattened, are_tables = flattened_shapes(model), tables(model.layers)
    arrays = {}
    for layer in spec.walk(model.layers):
        if isinstance(layer, spec.Named):
            for number, part in enumerate(_parts(layer)):
                name = f"{layer.name}.{part}"
                value = to_keras(weights[name], flattened.get(name), is_table=name in are_tables)
                arrays[f"{names[layer.name]}/{number}"] = value.reshape(_shape(layer, part, value.shape))
    for layer in spec.walk(model.layers):
        if isinstance(layer, spec.Dense) and layer.tied:  # Keras lists the owner's weights as those of this layer, too
            owner, name = names[layer.tied], names[layer.name]
            arrays |= {f"{name}/{key.rpartition('/')[2]}": arrays[key] for key in arrays if key.startswith(f"{owner}/")}
    return Code(_IMPORTS.format(name=escape(model.name.partition("~")[0])), network, arrays)


def _names(model: Model) -> Iterator[str]:
    return (layer.name for layer in spec.walk(model.layers) if isinstance(layer, spec.Named))


def _kinds(model: Model) -> set[str]:
    """Return the names of the classes that the model needs and Keras does not have."""
    return {
        "TiedDense" if isinstance(layer, spec.Dense) and layer.tied else type(layer).__name__
        for layer in spec.walk(model.layers)
    }


def _owners(model: Model) -> set[str]:
    """Return the names of the layers whose weight another layer uses."""
    return {layer.tied for layer in spec.walk(model.layers) if isinstance(layer, spec.Dense) and layer.tied}


def _parts(layer: spec.Named) -> Sequence[str]:
    """Return the canonical tensors in the order of the Keras layer's weights."""
    if isinstance(layer, spec.Attention):
        kinds = ("weight", "bias") if layer.bias else ("weight",)
        return [f"{projection}_{kind}" for projection in PROJECTIONS for kind in kinds]
    return list(layer.weight_shapes() | layer.state_shapes())


def _shape(layer: spec.Named, part: str, shape: spec.Shape) -> spec.Shape:
    """Return Keras's shape of a tensor; attention and depthwise convolutions split an axis."""
    match layer:
        case spec.Attention():
            heads = (layer.heads, layer.features // layer.heads)
            if part.startswith("output"):
                return (*heads, layer.features) if part == "output_weight" else shape
            return (layer.features, *heads) if part.endswith("weight") else heads
        case spec.Conv() if part == "weight" and _is_depthwise(layer):
            return (*shape[:2], layer.inputs, layer.outputs // layer.inputs)
        case _:
            return shape


def _is_depthwise(layer: spec.Conv) -> bool:
    return layer.groups > 1 and layer.groups == layer.inputs


def _sequence(
    sequence: Sequence[spec.Layer], shape: spec.Shape, x: str, depth: int, names: Mapping[str, str], owners: Set[str]
) -> Iterator[str]:
    """Yield the lines of layers that change the variable `x`.

    `names` are those of the Keras layers, `owners` are layers whose weights others use.
    """
    previous: spec.Layer | None = None
    for layer in sequence:
        if isinstance(layer, spec.Residual):
            shortcut = f"shortcut{depth or ''}"
            yield f"{shortcut} = {x}"
            yield from _sequence(layer.body, shape, x, depth + 1, names, owners)
            yield from _sequence(layer.shortcut, shape, shortcut, depth + 1, names, owners)
            yield f"{x} = layers.add([{x}, {shortcut}])"
        else:
            yield from _padding(layer, shape, x, previous)
            yield from _call(layer, shape, x, names, owners)
        shape, previous = layer.output_shape(shape), layer


def _padding(layer: spec.Layer, shape: spec.Shape, x: str, previous: spec.Layer | None) -> Iterator[str]:
    """Yield the line that pads before a layer if its own padding is another one."""
    if not isinstance(layer, spec.Conv | spec.MaxPool | spec.AveragePool) or keras_padding(layer, shape) is not None:
        return
    if isinstance(layer, spec.MaxPool) and not isinstance(previous, spec.ReLU | spec.ReLU6):
        yield f'{x} = keras.ops.pad({x}, {_every_axis(layer.pads)}, constant_values=-float("inf"))'
    else:  # after a ReLU, zeros are no larger than any pixel
        yield f"{x} = layers.ZeroPadding2D({layer.pads.padding})({x})"


def _call(layer: spec.Layer, shape: spec.Shape, x: str, names: Mapping[str, str], owners: Set[str]) -> Iterator[str]:
    """Yield the lines of a layer that is not a block, for an input of `shape`."""
    if isinstance(layer, spec.FirstPosition):
        yield f"{x} = {x}[:, 0]"
    elif isinstance(layer, spec.GELU):
        yield f"{x} = keras.ops.gelu({x}, approximate={layer.approximate == 'tanh'})"
    elif isinstance(layer, spec.Named) and layer.name in owners:
        owner = _owner(names[layer.name])
        yield f"{owner} = {_made(layer, shape, names)}"
        yield f"{x} = {owner}({x})"
    elif isinstance(layer, spec.Attention):
        causal = ", use_causal_mask=True" if layer.causal else ""
        yield f"{x} = {_made(layer, shape, names)}({x}, {x}{causal})"
    else:
        yield f"{x} = {_made(layer, shape, names)}({x})"
    if isinstance(layer, spec.Patches):
        yield f"{x} = layers.Reshape((-1, {layer.outputs}))({x})"
    if isinstance(layer, spec.AveragePool) and not layer.count_padding and keras_padding(layer, shape) is None:
        pixels = f'np.pad(np.ones({(1, *shape[1:], 1)}, "float32"), {_every_axis(layer.pads)})'
        yield f"{x} = {x} / keras.ops.average_pool({pixels}, {layer.size}, {layer.stride})  # without the padding"


def _every_axis(pads: Sides) -> str:
    return str(((0, 0), *pads.axes, (0, 0)))


def _owner(name: str) -> str:
    """Return the variable of a layer whose weight another layer uses: not a keyword, nor a name of the program."""
    return f"shared_{name}"


def _made(layer: spec.Layer, shape: spec.Shape, names: Mapping[str, str]) -> str:
    """Return the call that makes a Keras layer, with its name."""
    tied = layer.tied if isinstance(layer, spec.Dense) else None
    made = f"TiedDense({_owner(names[tied])})" if tied else _layer(layer, shape)
    if not isinstance(layer, spec.Named):
        return made
    comma = "" if made.endswith("()") else ", "
    return f'{made[:-1]}{comma}name="{names[layer.name]}")'


def _layer(layer: spec.Layer, shape: spec.Shape) -> str:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    match layer:
        case spec.Conv():
            padding = keras_padding(layer, shape) or "valid"
            options = f'strides={layer.stride}, padding="{padding}", use_bias={layer.bias}'
            if _is_depthwise(layer):
                multiplier = layer.outputs // layer.inputs
                return f"layers.DepthwiseConv2D({layer.kernel}, depth_multiplier={multiplier}, {options})"
            return f"layers.Conv2D({layer.outputs}, {layer.kernel}, groups={layer.groups}, {options})"
        case spec.Patches():
            return f"layers.Conv2D({layer.outputs}, {layer.size}, strides={layer.size}, use_bias={layer.bias})"
        case spec.Dense():
            return f"layers.Dense({layer.outputs}, use_bias={layer.bias})"
        case spec.Positions():
            return f"Positions({layer.length})"
        case spec.ClassToken():
            return "ClassToken()"
        case spec.BatchNorm():
            momentum = round(1 - layer.momentum, 12)  # Keras's is the weight of the old value
            return f"layers.BatchNormalization(momentum={momentum!r}, epsilon={layer.epsilon!r})"
        case spec.LayerNorm():
            return f"layers.LayerNormalization(epsilon={layer.epsilon!r}, center={layer.bias})"
        case spec.GroupNorm():
            return f"layers.GroupNormalization({layer.groups}, epsilon={layer.epsilon!r})"
        case spec.Dropout():
            return f"layers.Dropout({layer.rate!r})"
        case spec.MaxPool() | spec.AveragePool():
            kind = "Max" if isinstance(layer, spec.MaxPool) else "Average"
            same = ', "same"' if keras_padding(layer, shape) == "same" else ""
            return f"layers.{kind}Pooling2D({layer.size}, {layer.stride}{same})"
        case spec.GlobalAveragePool():
            return "layers.GlobalAveragePooling2D()"
        case spec.MeanOverTime():
            return "layers.GlobalAveragePooling1D()"
        case spec.ReLU():
            return "layers.ReLU()"
        case spec.ReLU6():
            return "layers.ReLU(max_value=6)"
        case spec.SiLU():
            return 'layers.Activation("silu")'
        case spec.Flatten():
            return "layers.Flatten()"
        case spec.Embedding():
            return f"layers.Embedding({layer.vocabulary}, {layer.features})"
        case spec.Attention():
            size = layer.features // layer.heads
            return f"layers.MultiHeadAttention({layer.heads}, {size}, use_bias={layer.bias})"
        case spec.LSTM(recurrent_activation="sigmoid", biases=1):
            lstm = f"layers.LSTM({layer.units}, return_sequences={layer.sequence})"
            return f"layers.Bidirectional({lstm})" if layer.bidirectional else lstm
        case _:
            name = getattr(layer, "name", layer.__struct_config__.tag)
            raise BadInput(f"{name}: Keras has no layer for {layer}: expected --framework torch or jax")
