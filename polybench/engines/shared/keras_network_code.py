"""Writes a network as Keras code, channels last.

This module does not import Keras. ADD A LAYER: its case in `_code`, and the tensors of its class in `_VIEWS`.
"""

from __future__ import annotations

import builtins
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from keyword import iskeyword
from typing import Literal, NamedTuple

from polybench.engines.shared.frameworks import unsupported_layer
from polybench.engines.shared.keras_layout import find_flattened
from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Part, Stage, parts
from polybench.networks.padding import same_in_tensorflow
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE
from polybench.networks.source_text import attributes, escape, literal, wrapped

_SAME, _TRANSPOSED = "np.asarray", "np.transpose"
_KERNEL = {"weight": _TRANSPOSED, "bias": _SAME}
_IMAGE_KERNEL = {"weight": "lambda x: x.transpose(3, 2, 0, 1)", "bias": _SAME}
_LSTM = {"weight": _TRANSPOSED, "recurrent": _TRANSPOSED, "bias": _SAME}
_VIEWS: Mapping[str, Mapping[str, str]] = {
    "layers.Conv2D": _IMAGE_KERNEL,
    "layers.DepthwiseConv2D": {
        "weight": "lambda x: x.reshape(*x.shape[:2], 1, -1).transpose(3, 2, 0, 1)", "bias": _SAME,
    },
    "layers.Dense": _KERNEL,
    "layers.BatchNormalization": dict.fromkeys(("weight", "bias", "running_mean", "running_variance"), _SAME),
    "layers.LayerNormalization": {"weight": _SAME, "bias": _SAME},
    "layers.GroupNormalization": {"weight": _SAME, "bias": _SAME},
    "layers.Embedding": {"weight": _SAME},
    "layers.LSTM": _LSTM,
    "layers.Bidirectional": {
        f"{reverse}{tensor}": _LSTM[tensor]
        for group in (("weight", "recurrent"), ("bias",)) for reverse in ("", REVERSE) for tensor in group
    },
    "layers.MultiHeadAttention": {
        **{f"{projection}_weight": "lambda x: x.reshape(len(x), -1).T" for projection in PROJECTIONS[:3]},
        "output_weight": "lambda x: x.reshape(-1, x.shape[2]).T",
        **{f"{projection}_bias": "np.ravel" for projection in PROJECTIONS},
    },
    "Positions": {"weight": _SAME},
    "ClassToken": {"token": _SAME},
}  # fmt: skip
"""The canonical tensors of each class of layers, and the function that returns one from an array of Keras.

They are in the order of Keras's `layer.weights`, biases last.
"""

_FUNCTIONS = {"self_attention": "layers.MultiHeadAttention", "bidirectional": "layers.Bidirectional"}
"""The classes whose layers these functions of `_DEFINITIONS` make."""

_SEVERAL_BIASES = ("layers.Bidirectional", "layers.MultiHeadAttention")

_DEFINITIONS = {
    "GivenDropout": '''class GivenDropout(layers.Layer):
    """Dropout with the mask of `set_masks`; a smaller batch has its first rows."""

    def __init__(self, batch_size, name):
        super().__init__(name=name)
        self.batch_size = batch_size

    def build(self, shape):
        shape = (self.batch_size, *shape[1:])
        self.mask = self.add_weight(shape, "ones", trainable=False)

    def call(self, x, training=False):
        if not training:
            return x
        return x * ops.cast(self.mask[: ops.shape(x)[0]], x.dtype)''',
    "Positions": '''class Positions(layers.Layer):
    """Adds a trained row to each position."""

    def __init__(self, length, name):
        super().__init__(name=name)
        self.length = length

    def build(self, shape):
        self.weight = self.add_weight((self.length, shape[-1]), name="weight")

    def call(self, x):
        return x + ops.cast(self.weight[: x.shape[1]], x.dtype)''',
    "ClassToken": '''class ClassToken(layers.Layer):
    """Adds a trained position before the first one."""

    def build(self, shape):
        self.token = self.add_weight((shape[-1],), name="token")

    def call(self, x):
        token = ops.cast(self.token, x.dtype)
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, token.shape[0]))
        return ops.concatenate([token, x], axis=1)''',
    "ImageMean": '''class ImageMean(layers.AveragePooling2D):
    """Mean of windows of a padded image, without the padding."""

    def __init__(self, size, stride, pads):
        super().__init__(size, stride)
        self.pads = pads

    def call(self, x):
        (top, bottom), (left, right) = self.pads
        image = np.ones((1, x.shape[1] - top - bottom, x.shape[2] - left - right, 1))
        is_image = np.pad(image, ((0, 0), *self.pads, (0, 0)))
        return super().call(x) / super().call(ops.cast(is_image, x.dtype))''',
    "TiedDense": '''class TiedDense(layers.Layer):
    """A dense layer with the weight of another layer."""

    def __init__(self, owner, name):
        super().__init__(name=name)
        self.owner = owner

    def call(self, x):
        if isinstance(self.owner, layers.Embedding):
            table = ops.cast(self.owner.embeddings, x.dtype)
            return ops.matmul(x, ops.transpose(table))
        return ops.matmul(x, ops.cast(self.owner.kernel, x.dtype))''',
    "gelu": '''def gelu(x):
    """GELU with a constant in float64, which Keras rounds to float32."""
    return x * (1 + ops.erf(x * np.float64(np.sqrt(0.5)))) / 2''',
    "tanh_gelu": '''def tanh_gelu(x):
    """The approximation of GELU."""
    return keras.activations.gelu(x, approximate=True)''',
    "tanh_gelu64": '''def tanh_gelu(x):
    """The approximation of GELU with constants in float64, which Keras rounds."""
    cubic = x + np.float64(0.044715) * x**3
    return x * (1 + ops.tanh(np.float64(np.sqrt(2 / np.pi)) * cubic)) / 2''',
    "self_attention": '''def self_attention(x, heads, causal=False, use_bias=True, name=None):
    size = x.shape[-1] // heads
    attention = layers.MultiHeadAttention(heads, size, use_bias=use_bias, name=name)
    return attention(x, x, use_causal_mask=causal)''',
    "self_attention64": '''def self_attention(x, heads, causal=False, use_bias=True, name=None):
    size = x.shape[-1] // heads
    attention = layers.MultiHeadAttention(heads, size, use_bias=use_bias, name=name)
    # TensorFlow would round a Python float to float32.
    attention._inverse_sqrt_key_dim = np.float64(1 / np.sqrt(size))
    if keras.backend.backend() != "jax":
        return attention(x, x, use_causal_mask=causal)
    # Without jax.nn.dot_product_attention, whose softmax is in float32.
    return attention(x, x, use_causal_mask=causal, return_attention_scores=True)[0]''',
    "hard_sigmoid": '''@keras.saving.register_keras_serializable()
def hard_sigmoid(x):
    """Hard sigmoid of Keras 2; that of Keras 3 is x / 6 + 0.5."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)''',
    "bidirectional": '''def bidirectional(lstm, name):
    """Both directions, which XLA can compile.

    Keras makes them again, first with cuDNN, and assumes that XLA cannot.
    """
    both = layers.Bidirectional(lstm, name=name)
    for layer in (both, both.forward_layer, both.backward_layer):
        layer.supports_jit = True
    return both''',
}  # fmt: skip
"""Definitions of what Keras lacks, by name."""

_AUTOMATIC = re.compile(
    r"(activation|add|average_pooling2d|flatten|functional|get_item|global_average_pooling[12]d|image_mean|input_layer"
    r"|max_pooling2d|pad|re_lu|reshape|sequential|zero_padding2d)(_\d+)?"
)
"""Names that Keras gives to what the program leaves without one; a model cannot have two of a name."""

_OPTIONS = {"unrolled": "unroll=True", "no_fusion": "use_cudnn=False"}
"""Options of `layers.LSTM` by the engine's variant."""

_TAKEN = frozenset({
    "assign", "channels_first", "dataclass", "forward_pass", "inputs", "json", "keras", "layers", "learning_rate",
    "load", "loss_and_gradients", "loss_function", "make_network", "make_optimizer", "make_step", "math", "name",
    "network", "np", "ops", "os", "partial", "read_data", "reset", "set_learning_rate", "set_masks", "setup",
    "shortcut", "split", "start", "state", "sys", "tf", "time", "torch", "train_step", "train_steps", "variables",
    "weights", "x", *_DEFINITIONS, *dir(builtins),
})  # fmt: skip
"""Names in the program that a block could have."""


class _Code(NamedTuple):
    """A layer in Keras.

    Attributes:
        made: what makes it, without the arguments; "" for the first position of a sequence.
        arguments: of `made`.
        needs: names of `_DEFINITIONS`.
        takes_x: True if `made` is a function of the input.
    """

    made: str = ""
    arguments: Sequence[str] = ()
    needs: Sequence[str] = ()
    takes_x: bool = False


class _Scope(NamedTuple):
    """The place of layers: the block, if any; the fields that its parameters stand for; and those that were read."""

    prefix: str
    kind_prefix: str
    fields: Mapping[tuple[str, str], str]
    used: set[str]


_NO_BLOCK = _Scope("", "", {}, set())


class KerasNetwork:
    """The code of a network, and of the way from its variables to canonical tensors.

    Attributes:
        mask_batch_size: batch size of the given masks of dropout; None for Keras's own dropout.
        variants: the engine's, which change LSTMs.
        float64: True if constants must be exact.
    """

    def __init__(
        self,
        layers: Sequence[spec.Layer],
        shape: spec.Shape,
        *,
        mask_batch_size: int | None = None,
        variants: Sequence[str] = (),
        float64: bool = False,
        input_dtype: str = "",
    ) -> None:
        self._layers, self._shape, self._variants = layers, shape, variants
        self._mask_batch_size, self._float64, self._input_dtype = mask_batch_size, float64, input_dtype
        self._named = {layer.name: layer for layer in spec.walk(layers) if isinstance(layer, spec.Named)}
        self._owners = {layer.tied for layer in self._named.values() if isinstance(layer, spec.Dense) and layer.tied}
        self._flattened = find_flattened(layers, shape)
        self._needs: set[str] = set()
        self._classes: set[str] = set()
        self._functions: dict[str, str] = {}
        self._parts: Sequence[Part] = parts(layers, shape)
        self._names = self._block_names()
        if not self._names:  # Keras's names of the layers in blocks would not be unique
            self._parts, self._names = layers, attributes(self._named, lambda name: bool(_AUTOMATIC.fullmatch(name)))
        self._network = self._make_network()

    def _block_names(self) -> dict[str, str]:
        """Return Keras's names of the layers; none if those of blocks are not unique, or one shares a weight."""
        names = {name: attributes([name])[name] for name in self._named}
        in_blocks = {
            layer.name for block in self._blocks() for layer in spec.walk(self._layers_of(block))
            if isinstance(layer, spec.Named)
        }  # fmt: skip
        is_unique = len({*names.values()}) == len(names) and not any(map(_AUTOMATIC.fullmatch, names.values()))
        return names if is_unique and not in_blocks & self._owners else {}

    def _blocks(self) -> Iterator[Block]:
        for part in self._parts:
            yield from part.blocks if isinstance(part, Stage) else (part,) if isinstance(part, Block) else ()

    def text(self, summary: str = "") -> str:
        """Return what Keras lacks, the functions of blocks, and `make_network`."""
        docstring = f'"""{escape(f"{summary[:1].upper()}{summary[1:]}.")}"""'
        filled = textwrap.fill(docstring, 84, break_long_words=False, break_on_hyphens=False)
        lines = ["def make_network():", *([textwrap.indent(filled, "    ")] if summary else []), *self._network]
        functions = (f"def {name}{body}" for name, body in self._functions.items())
        definitions = [text for name, text in _DEFINITIONS.items() if name in self._needs]
        return "\n\n\n".join([*definitions, *functions, "\n".join(lines)])

    def _make_network(self) -> list[str]:
        size = self._shape
        shape = (*size[1:], size[0]) if len(size) == 3 else size
        dtype = f", dtype={literal(self._input_dtype)}" if self._input_dtype else ""
        inputs = f"keras.Input({shape}{dtype})"
        if codes := self._sequence():
            lines = [f"            {inputs},"]
            for code in codes:
                lines += wrapped(f"            {code.made}(", code.arguments, "),")
            return ["    return keras.Sequential(", "        [", *lines, "        ]", "    )"]
        lines = []
        x = self._chain(self._parts, self._shape, ("inputs", "x"), lines, _NO_BLOCK)
        return _indented([f"inputs = {inputs}", *lines, f"return keras.Model(inputs, {x})"])

    def _sequence(self) -> list[_Code]:
        """Return the layers if the network is a list of Keras's."""
        if self._owners or any(isinstance(part, spec.Residual | Block | Stage) for part in self._parts):
            return []
        shape, codes, previous = self._shape, list[_Code](), None
        for layer in self._layers:
            codes += self._codes(layer, shape, _NO_BLOCK, previous)
            shape, previous = layer.output_shape(shape), layer
        return codes if all(code.made and not code.takes_x for code in codes) else []

    def _chain(
        self,
        sequence: Sequence[Part],
        shape: spec.Shape,
        variables: tuple[str, str],
        lines: list[str],
        scope: _Scope,
        depth: int = 0,
    ) -> str:
        """Append the statements that compute the layers; return the variable of the result.

        `variables` are that of the input, and that of everything after it; `depth` counts the blocks around.
        """
        x, target = variables
        previous: Part | None = None
        for part in sequence:
            if isinstance(part, Block | Stage):
                x, shape = self._call_blocks(part, shape, (x, target), lines)
                previous = part
                continue
            if isinstance(part, spec.Residual):
                shortcut = f"shortcut{depth or ''}"
                lines.append(f"{shortcut} = {x}")
                body = self._chain(part.body, shape, (x, target), lines, scope, depth + 1)
                other = self._chain(part.shortcut, shape, (shortcut, shortcut), lines, scope, depth + 1)
                lines.append(f"{target} = layers.Add()([{body}, {other}])")
            else:
                lines += self._applied(self._codes(part, shape, scope, previous), part, (x, target))
            x, shape, previous = target, part.output_shape(shape), part
        return x

    def _applied(self, codes: Iterable[_Code], layer: spec.Layer, variables: tuple[str, str]) -> Iterator[str]:
        """Yield the statements of a layer."""
        x, target = variables
        for code in codes:
            if not code.made:
                yield f"{target} = {x}[:, 0]"
            elif isinstance(layer, spec.Named) and layer.name in self._owners:
                owner = self._owner(layer.name)
                yield from wrapped(f"{owner} = {code.made}(", code.arguments, width=84)
                yield f"{target} = {owner}({x})"
            elif code.takes_x:
                yield from wrapped(f"{target} = {code.made}(", [x, *code.arguments], width=84)
            else:
                yield from _made_and_called(f"{target} = {code.made}(", code.arguments, x)
            x = target

    def _owner(self, name: str) -> str:
        """Return the variable of a layer whose weight another layer uses."""
        return f"shared_{self._names[name]}"

    def _call_blocks(
        self, part: Block | Stage, shape: spec.Shape, variables: tuple[str, str], lines: list[str]
    ) -> tuple[str, spec.Shape]:
        """Append the calls of blocks, those with the same arguments in a loop; return the result and its shape."""
        x, target = variables
        blocks = part.blocks if isinstance(part, Stage) else (part,)
        calls = []
        for block in blocks:
            calls.append(self._call(block, shape))
            shape = self._shape_after(block, shape)
        number = 0
        for (function, *arguments), equal in groupby(calls):
            count, prefix = len(list(equal)), blocks[number].prefix
            name = attributes([prefix])[prefix]
            if count == 1 or not isinstance(part, Stage):
                lines += wrapped(f"{target} = {function}(", [x, *arguments, f'name="{name}"'], width=84)
            else:
                first = part.first + number
                numbered = f'name=f"{name.removesuffix(str(first))}{{number}}"'
                lines += [f"{target} = {x}"] * (x != target)
                lines.append(f"for number in range({first}, {first + count}):")
                lines += wrapped(f"    {target} = {function}(", [target, *arguments, numbered], width=84)
            x, number = target, number + count
        return x, shape

    def _call(self, block: Block, shape: spec.Shape) -> tuple[str, ...]:
        """Write the function of a block, unless it exists; return its name and its arguments for this block."""
        lines: list[str] = []
        scope = _Scope(block.prefix, block.kind.prefix, block.kind.fields, set())
        result = self._chain(self._layers_of(block), shape, ("x", "x"), lines, scope)
        parameters = [name for name in dict.fromkeys(block.kind.fields.values()) if name in scope.used]
        body = "\n".join([f"({', '.join(['x', *parameters, 'name'])}):", *_indented(_returned(lines, result))])
        name = base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", block.kind.name).lower()
        number = 2
        while iskeyword(name) or name in _TAKEN or self._functions.setdefault(name, body) != body:
            name, number = f"{base}_block{number}", number + 1
        return name, *(repr(block.arguments[parameter]) for parameter in parameters)

    def _layers_of(self, block: Block) -> Sequence[spec.Layer]:
        """Return the layers of a block, with their own names and sizes."""

        def own(layer: spec.Layer) -> spec.Layer:
            if isinstance(layer, spec.Residual):
                return spec.Residual(tuple(map(own, layer.body)), tuple(map(own, layer.shortcut)))
            if not isinstance(layer, spec.Named):
                return layer
            return self._named[f"{block.prefix}{layer.name.removeprefix(block.kind.prefix)}"]

        return tuple(map(own, block.kind.layers))

    def _shape_after(self, part: Block | Stage, shape: spec.Shape) -> spec.Shape:
        for block in part.blocks if isinstance(part, Stage) else (part,):
            for layer in self._layers_of(block):
                shape = layer.output_shape(shape)
        return shape

    def _codes(
        self, layer: spec.Layer, shape: spec.Shape, scope: _Scope, previous: Part | None = None
    ) -> Iterator[_Code]:
        """Yield the Keras layers of a layer, with those before and after it."""
        if isinstance(layer, spec.Conv | spec.MaxPool | spec.AveragePool) and _own_padding(layer, shape) is None:
            if isinstance(layer, spec.MaxPool) and not isinstance(previous, spec.ReLU | spec.ReLU6):
                sides = str(((0, 0), *layer.pads.axes, (0, 0)))
                yield _Code("ops.pad", [sides, "constant_values=-np.inf"], takes_x=True)
            else:  # after a ReLU, zeros are no larger than any pixel
                yield _Code("layers.ZeroPadding2D", [str(layer.pads.padding)])
        code = self._code(layer, shape, scope)
        self._needs.update(code.needs)
        self._classes.add(_FUNCTIONS.get(code.made, code.made))
        if isinstance(layer, spec.Named):
            code = code._replace(arguments=[*code.arguments, self._name(layer, scope)])
        yield code
        if isinstance(layer, spec.Patches):
            yield _Code("layers.Reshape", [f"(-1, {layer.outputs})"])

    def _name(self, layer: spec.Named, scope: _Scope) -> str:
        if not scope.prefix:
            return f"name={literal(self._names[layer.name])}"
        local = self._names[layer.name].removeprefix(attributes([scope.prefix])[scope.prefix])
        return f'name=f"{{name}}{local}"'

    def _code(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of layer
        self, layer: spec.Layer, shape: spec.Shape, scope: _Scope
    ) -> _Code:
        """Return a layer's code for an input of `shape`."""

        def field(name: str) -> str:
            own = getattr(layer, "name", "").removeprefix(scope.prefix)
            if parameter := scope.fields.get((f"{scope.kind_prefix}{own}", name)):
                scope.used.add(parameter)
                return parameter
            return repr(getattr(layer, name))

        bias = ["use_bias=False"] if not getattr(layer, "bias", True) else []
        match layer:
            case spec.Conv() if layer.groups > 1 and layer.groups == layer.inputs:
                times = layer.outputs // layer.inputs
                multiplier = [f"depth_multiplier={times}"] if times > 1 else []
                options = [*_strides(field("stride")), *_padding(layer, shape), *multiplier]
                return _Code("layers.DepthwiseConv2D", [str(layer.kernel), *options, *bias])
            case spec.Conv():
                groups = [f"groups={field('groups')}"] if layer.groups > 1 else []
                options = [*_strides(field("stride")), *_padding(layer, shape), *groups]
                return _Code("layers.Conv2D", [field("outputs"), str(layer.kernel), *options, *bias])
            case spec.Patches():
                size = str(layer.size)
                return _Code("layers.Conv2D", [field("outputs"), size, f"strides={size}", *bias])
            case spec.Dense(tied=str() as tied):
                if tied not in self._named:
                    raise unsupported_layer("Keras", layer, "a tied weight of another model")
                return _Code("TiedDense", [self._owner(tied)], ["TiedDense"])
            case spec.Dense():
                return _Code("layers.Dense", [field("outputs"), *bias])
            case spec.LayerNorm():
                center = ["center=False"] if not layer.bias else []
                return _Code("layers.LayerNormalization", [f"epsilon={layer.epsilon!r}", *center])
            case spec.GroupNorm():
                return _Code("layers.GroupNormalization", [field("groups"), f"epsilon={layer.epsilon!r}"])
            case spec.BatchNorm():
                momentum = 1 - layer.momentum  # Keras's is the weight of the old value
                options = [f"momentum={momentum!r}", f"epsilon={layer.epsilon!r}"]
                return _Code("layers.BatchNormalization", options)
            case spec.Dropout() if self._mask_batch_size is not None:
                return _Code("GivenDropout", [str(self._mask_batch_size)], ["GivenDropout"])
            case spec.Dropout():
                return _Code("layers.Dropout", [field("rate")])
            case spec.MaxPool() | spec.AveragePool():
                return _pool(layer, shape)
            case spec.GlobalAveragePool():
                return _Code("layers.GlobalAveragePooling2D")
            case spec.MeanOverTime():
                return _Code("layers.GlobalAveragePooling1D")
            case spec.ReLU():
                return _Code("layers.ReLU")
            case spec.ReLU6():
                return _Code("layers.ReLU", ["max_value=6"])
            case spec.GELU() if layer.approximate == "tanh":
                return _Code("layers.Activation", ["tanh_gelu"], ["tanh_gelu64" if self._float64 else "tanh_gelu"])
            case spec.GELU():
                return (
                    _Code("layers.Activation", ["gelu"], ["gelu"])
                    if self._float64
                    else _Code("layers.Activation", ['"gelu"'])
                )
            case spec.SiLU():
                return _Code("layers.Activation", ['"silu"'])
            case spec.Flatten():
                return _Code("layers.Flatten")
            case spec.Embedding():
                return _Code("layers.Embedding", [str(layer.vocabulary), field("features")])
            case spec.LSTM():
                return self._lstm(layer, field)
            case spec.Attention():
                options = [field("heads"), *(["causal=True"] if layer.causal else []), *bias]
                needs = ["self_attention64" if self._float64 else "self_attention"]
                return _Code("self_attention", options, needs, takes_x=True)
            case spec.Positions():
                return _Code("Positions", [str(layer.length)], ["Positions"])
            case spec.ClassToken():
                return _Code("ClassToken", (), ["ClassToken"])
            case spec.FirstPosition():
                return _Code()
            case _:
                raise unsupported_layer("Keras", layer)

    def _lstm(self, layer: spec.LSTM, field: Callable[[str], str]) -> _Code:
        """Return a layer whose gates are in the canonical order.

        On a GPU, `layers.LSTM` uses cuDNN's fused kernel if that computes the same: the recurrent activation is
        "sigmoid" and the loop is not unrolled (`cudnn_ok`, keras/src/backend/tensorflow/rnn.py). On the CPU, Keras on
        TensorFlow always uses a loop.
        """
        if layer.biases == 2:
            raise unsupported_layer("Keras", layer, "biases = 2")
        is_hard = layer.recurrent_activation == "hard_sigmoid"
        options = [
            field("units"),
            *(["return_sequences=True"] if layer.sequence else []),
            *(["recurrent_activation=hard_sigmoid"] if is_hard else []),
            *(_OPTIONS[variant] for variant in self._variants if variant in _OPTIONS),
        ]
        needs = ["hard_sigmoid"] if is_hard else []
        if layer.bidirectional:
            lstm = [f"layers.LSTM({', '.join(options)})"]
            if "no_fusion" in self._variants:
                return _Code("bidirectional", lstm, [*needs, "bidirectional"])
            return _Code("layers.Bidirectional", lstm, needs)
        return _Code("layers.LSTM", options, needs)

    @property
    def renamed(self) -> str:
        """The expression of a canonical name, from `layer.name`."""
        if all(name == own for name, own in self._names.items()):
            return "layer.name"
        if all(own.replace("_", ".") == name for name, own in self._names.items()):
            return 'layer.name.replace("_", ".")'
        return "NAMES.get(layer.name, layer.name)"

    @property
    def has_flattened(self) -> bool:
        """True if the code of `variables` needs `functools.partial`."""
        return bool(self._tensors_flattened)

    @property
    def _tensors_flattened(self) -> Mapping[str, spec.Shape]:
        tensors = {
            f"{name}.{tensor}" for name, layer in self._named.items()
            for tensor in layer.weight_shapes() | layer.state_shapes()
        }  # fmt: skip
        return {name: shape for name, shape in self._flattened.items() if name in tensors}

    def variables(self) -> Iterator[str]:
        """Yield the tables, and the function `variables`."""
        yield "\n".join(self._tables())
        if self.has_flattened:
            yield _CHANNELS_FIRST
        is_renamed = self.renamed != "layer.name"
        several = any(name in self._classes for name in _SEVERAL_BIASES)
        weights = "weights" if several else "layer.weights"
        lines = [
            "def variables(model):",
            '    """Return each variable by its name in polybench, with its view there."""',
            *(["", "    def is_bias(variable):", '        return variable.name == "bias"', ""] if several else []),
            "    found = {}",
            "    for layer in model.layers:",
            "        views = VIEWS.get(type(layer), {}).items()",
            *(["        weights = sorted(layer.weights, key=is_bias)"] if several else []),
            f"        for (tensor, view), variable in zip(views, {weights}, strict=False):",
            *([f"            name = {self.renamed}"] if is_renamed else []),
            f'            found[f"{{{"name" if is_renamed else "layer.name"}}}.{{tensor}}"] = variable, view',
        ]
        if self.has_flattened:
            lines += [
                "    for name, size in FLATTENED.items():",
                "        found[name] = found[name][0], partial(channels_first, *size)",
            ]
        yield "\n".join([*lines, "    return found"])

    def _tables(self) -> Iterator[str]:
        if self.renamed.startswith("NAMES"):
            table = {own: name for name, own in self._names.items() if own != name}
            yield from _display("NAMES = {", [f"{literal(own)}: {literal(name)}" for own, name in table.items()])
        lines: list[str] = []
        for name, views in _VIEWS.items():
            if name in self._classes:
                lines += _display(f"    {name}: {{", [f'"{tensor}": {view}' for tensor, view in views.items()], "},")
        yield from ["VIEWS = {", *lines, "}"] if lines else ["VIEWS = {}"]
        yield '"""The tensors of each kind of layer, and their axes in polybench."""'
        if self.has_flattened:
            sizes = {name: (*shape[1:], shape[0]) for name, shape in self._tensors_flattened.items()}
            yield from _display("FLATTENED = {", [f"{literal(name)}: {size}" for name, size in sizes.items()])
            yield '"""Height, width and channels of what was flattened; polybench flattens channels first."""'


_CHANNELS_FIRST = '''def channels_first(height, width, channels, x):
    """View what has a row for each flattened feature."""
    x = x.reshape(height, width, channels, *x.shape[1:])
    return np.moveaxis(x, 2, 0).reshape(height * width * channels, *x.shape[3:]).T'''


def _strides(stride: str) -> list[str]:
    return [f"strides={stride}"] if stride != "1" else []


def _own_padding(
    layer: spec.Conv | spec.MaxPool | spec.AveragePool, shape: spec.Shape
) -> Literal["valid", "same"] | None:
    """Return Keras's padding for inputs of `shape`; None if a layer before it has to pad."""
    if not any(layer.pads):
        return "valid"
    size = layer.kernel if isinstance(layer, spec.Conv) else layer.size
    counts_padding = isinstance(layer, spec.AveragePool) and layer.count_padding  # Keras's own does not
    is_same = layer.pads == same_in_tensorflow(shape, size, layer.stride)
    return "same" if is_same and not counts_padding else None


def _padding(layer: spec.Conv | spec.MaxPool | spec.AveragePool, shape: spec.Shape) -> list[str]:
    return ['padding="same"'] if _own_padding(layer, shape) == "same" else []


def _pool(layer: spec.MaxPool | spec.AveragePool, shape: spec.Shape) -> _Code:
    name = "MaxPooling2D" if isinstance(layer, spec.MaxPool) else "AveragePooling2D"
    sizes = [str(layer.size), *([str(layer.stride)] if layer.stride != layer.size else [])]
    if _own_padding(layer, shape) is not None or getattr(layer, "count_padding", True):
        return _Code(f"layers.{name}", [*sizes, *_padding(layer, shape)])
    return _Code("ImageMean", [str(layer.size), str(layer.stride), str(layer.pads.axes)], ["ImageMean"])


def _made_and_called(start: str, arguments: Sequence[str], x: str) -> list[str]:
    """Return the lines that make a layer and apply it; ruff would break the second call if the first one fitted."""
    head = f"{start}{', '.join(arguments)})("
    if len(head) <= 84 < len(f"{head}{x})"):
        return [start, *(f"    {argument}," for argument in arguments), f")({x})"]
    return wrapped(start, arguments, f")({x})", width=84)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _returned(lines: Sequence[str], result: str) -> list[str]:
    """Return the lines with the last assignment as the result."""
    start = next((n for n in reversed(range(len(lines))) if lines[n].startswith(f"{result} = ")), None)
    if start is None:
        return [*lines, f"return {result}"]
    return [*lines[:start], lines[start].replace(f"{result} =", "return", 1), *lines[start + 1 :]]


def _display(start: str, items: Iterable[str], end: str = "}") -> list[str]:
    """Return the lines of a dictionary: one if it fits, otherwise one for each item."""
    items = list(items)
    line = f"{start}{', '.join(items)}{end}"
    if len(line) <= 88:
        return [line]
    indent = " " * (len(start) - len(start.lstrip()))
    return [start, *(f"{indent}    {item}," for item in items), f"{indent}{end}"]
