"""Writes a network as functions of JAX: pure functions of a dictionary of parameters by canonical name.

Images are channels first and kernels (out, in, height, width): the canonical layout and the default of
`lax.conv_general_dilated`. XLA chooses its own layout inside a compiled step. This module does not import JAX.
ADD A LAYER: its case in `_write_layer`, and its function in `_helpers`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from keyword import iskeyword
from typing import NamedTuple, TypeVar

from polybench.engines.jax.initial_code import InitialCode
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Kind, Part, Stage, blocks_of, parts
from polybench.networks.sequence_layers import REVERSE
from polybench.networks.source_text import WIDTH, attributes, docstring, escape_in_braces, literal, wrapped
from polybench.networks.statements import Expression, Statements

_HELPERS = (
    *("conv", "dense", "patches", "max_pool", "average_pool", "normalize", "layer_norm", "group_norm", "batch_norm"),
    *("dropout", "hard_sigmoid", "lstm", "bidirectional_lstm", "dot_product_attention", "attention", "class_token"),
)
_TAKEN = frozenset({
    *dir(builtins), *_HELPERS, "network", "optimizer", "learning_rate", "make_optimizer", "is_matrix", "scale_by_adam",
    "clip_by_global_norm", "setup", "reset", "load", "cross_entropy", "compute_loss", "update", "train_step", "weights",
    "compute_logits", "forward_pass", "read_data", "jax", "jnp", "np", "optax", "lax", "json", "os", "sys", "time",
    "partial", "params", "buffers", "masks", "name", "number", "training", "state", "inputs", "labels",
    "initial_weights", "shapes",
})  # fmt: skip
"""Names in the program that a block's function could have."""

_OPTIONS: Mapping[type[spec.Layer], Sequence[str]] = {
    spec.Conv: ("stride", "groups"),
    spec.GroupNorm: ("groups",),
    spec.Attention: ("heads",),
    spec.Dropout: ("rate",),
}
"""Fields in the code of a layer in which blocks of one kind may differ; others are shapes of its tensors."""

AnyLayer = TypeVar("AnyLayer", bound=spec.Layer)
_Biased = spec.Conv | spec.Dense | spec.Patches | spec.LayerNorm | spec.Attention

_NORMALIZE = '''def normalize(x, epsilon):
    """Subtract the mean of the last axis, and divide by its standard deviation."""
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt(x.var(-1, keepdims=True) + epsilon)'''
_DROPOUT = """def dropout(rate, buffers, x, training):
    if not training:
        return x
    buffers["key"], key = jax.random.split(buffers["key"])
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0)"""
_GIVEN_DROPOUT = """def dropout(masks, name, x, training):
    return x * masks[name]{cast} if training else x"""
_ATTENTION_IN_FLOAT64 = '''def dot_product_attention(q, k, v, is_causal):
    """`jax.nn.dot_product_attention`, whose softmax is always in float32, in float64."""
    scores = jnp.einsum("bqhs,bkhs->bhqk", q, k) / q.shape[-1] ** 0.5
    if is_causal:
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhs->bqhs", jax.nn.softmax(scores), v)'''
"""See `_dot_product_attention_core` in jax/_src/nn/functions.py, jax 0.10.2."""
_HARD_SIGMOID = """def hard_sigmoid(x):
    return jnp.clip(0.2 * x + 0.5, 0, 1)"""
_LSTM = """
    def step(carry, rows):
        h, c = carry
        i, f, g, o = jnp.split(rows + h @ recurrent, 4, axis=-1)
        c = {gate}(f) * c + {gate}(i) * jnp.tanh(g)
        h = {gate}(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((len(x), len(recurrent)), x.dtype)
    _, outputs = lax.scan(step, (zeros, zeros), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)"""
"""The loop; a single product before it multiplies the inputs of all time steps."""


class _Scope(NamedTuple):
    """The function in which a layer is: that of a block's kind, or of the network."""

    kind: Kind | None = None

    def text(self, name: str) -> str:
        """Return the expression of a layer's or tensor's name."""
        if self.kind is None:
            return literal(name)
        return f'f"{{name}}{escape_in_braces(name.removeprefix(self.kind.prefix))}"'

    def field(self, layer: spec.Layer, name: str) -> str:
        """Return a layer's number, or the parameter that stands for it."""
        fields = self.kind.fields if self.kind else {}
        return fields.get((getattr(layer, "name", ""), name)) or repr(getattr(layer, name))


class NetworkCode:
    """The functions of a network.

    With `given_masks`, dropout multiplies by masks. With `is_bf16`, convolutions and products compute in bfloat16.
    With `is_float64`, attention computes its softmax in float64.
    """

    def __init__(
        self,
        layers: Sequence[spec.Layer],
        shape: spec.Shape,
        *,
        given_masks: bool = False,
        is_bf16: bool = False,
        is_float64: bool = False,
    ) -> None:
        self._layers, self._all, self._given_masks = layers, list(spec.walk(layers)), given_masks
        self._is_bf16, self._is_float64 = is_bf16, is_float64
        self._cast = ".astype(x.dtype)" if is_bf16 else ""
        self._has_images_only = all(
            len(before) == 3
            for layer, before, _ in spec.layer_shapes(layers, shape)
            if isinstance(layer, spec.BatchNorm)
        )
        self._parts = parts(layers, shape, ["".join(map(str.capitalize, name.split("_"))) for name in _HELPERS])
        kinds = {block.kind.name: block.kind for part in self._parts for block in blocks_of(part)}
        self._kinds = list(kinds.values())
        snakes = {name: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in kinds}
        unique = attributes(dict.fromkeys(snakes.values()), lambda name: iskeyword(name) or name in _TAKEN)
        self._functions = {name: unique[snake] for name, snake in snakes.items()}

    @property
    def has_buffers(self) -> bool:
        """True if training changes more than weights."""
        return has_buffers(self._layers)

    @property
    def has_statistics(self) -> bool:
        """True if there are running statistics."""
        return any(isinstance(layer, spec.BatchNorm) for layer in self._all)

    @property
    def has_dropout(self) -> bool:
        """True if the network has dropout."""
        return any(isinstance(layer, spec.Dropout) for layer in self._all)

    def text(self, summary: str = "") -> str:
        """Return the functions; the last one is `network`."""
        functions = ["\n".join(lines) for lines in self._helpers()]
        for kind in self._kinds:
            arguments = ", ".join(self._arguments(kind.layers, "name", "x", self._options_of(kind)))
            body = self._statements(_Scope(kind)).forward(kind.layers)
            functions.append("\n".join([f"def {self._functions[kind.name]}({arguments}):", *body]))
        return "\n\n\n".join([*functions, "\n".join(self._network(summary))])

    def initial(self, initialization: str) -> Iterator[str]:
        """Yield the functions of initial weights; `initialization` is that of the model."""
        return InitialCode(self._parts, self._layers, self._functions).text(initialization)

    def _network(self, summary: str) -> Iterator[str]:
        masks = ["masks=None"] if self._given_masks and self.has_dropout else []
        changes = ["training=False"] if self.has_buffers else []
        buffers = ["buffers"] if self.has_buffers else []
        yield f"def network({', '.join(['params', *buffers, 'x', *masks, *changes])}):"
        yield from docstring(summary)
        if buffers:
            yield "    buffers = dict(buffers)"
        if self._is_bf16 and not isinstance(self._layers[0], spec.Embedding):
            yield "    x = x.astype(jnp.bfloat16)"
        yield from self._statements(_Scope()).forward(self._parts, "{}, buffers" if buffers else "{}")

    def _statements(self, scope: _Scope) -> Statements:
        return Statements(lambda part, x, _: self._write(part, x, scope), " " * 4)

    def _arguments(self, layers: Sequence[spec.Layer], name: str, x: str, options: Sequence[str] = ()) -> list[str]:
        """Return the arguments of a call or function that computes these layers."""
        found = list(spec.walk(layers))
        tensors = any(layer.weight_shapes() for layer in found if isinstance(layer, spec.Named))
        has_norm, has_dropout = (
            any(isinstance(layer, kind) for layer in found) for kind in (spec.BatchNorm, spec.Dropout)
        )
        return [
            *(["params"] if tensors else []),
            *(["buffers"] if has_norm or (has_dropout and not self._given_masks) else []),
            *(["masks"] if has_dropout and self._given_masks else []),
            *([name] if name else []),
            x,
            *(["training"] if has_norm or has_dropout else []),
            *options,
        ]

    def _options_of(self, kind: Kind) -> list[str]:
        """Return the parameters of a kind that its code uses."""
        layers = {layer.name: layer for layer in spec.walk(kind.layers) if isinstance(layer, spec.Named)}
        return list(
            dict.fromkeys(
                parameter
                for (layer, field), parameter in kind.fields.items()
                if field in _OPTIONS.get(type(layers[layer]), ())
                and not (self._given_masks and isinstance(layers[layer], spec.Dropout))
            )
        )

    def _block(self, block: Block, name: str, x: str) -> str:
        """Return the call of a block's function."""
        options = [f"{option}={block.arguments[option]!r}" for option in self._options_of(block.kind)]
        return f"{self._functions[block.kind.name]}({', '.join(self._arguments(block.kind.layers, name, x, options))})"

    def _stage(self, stage: Stage, x: str) -> Iterator[str]:
        """Yield the statements of consecutive blocks, equal ones in a loop."""
        number = stage.first
        series = escape_in_braces(f"{stage.parent}.{stage.base}" if stage.parent else stage.base)
        for call, equal in groupby(stage.blocks, lambda block: self._block(block, f'f"{series}{{number}}"', x)):
            blocks = list(equal)
            if len(blocks) == 1:
                yield f"{x} = {self._block(blocks[0], literal(blocks[0].prefix), x)}"
            else:
                yield f"for number in range({number}, {number + len(blocks)}):"
                yield f"    {x} = {call}"
            number += len(blocks)

    def _write(self, part: Part, x: str, scope: _Scope) -> Expression:
        """Return the output of a part for the input `x`."""
        if isinstance(part, Stage):
            return Expression(x, list(self._stage(part, x)), needs_variable=True)
        if isinstance(part, Block):
            return Expression(self._block(part, literal(part.prefix), x))
        return self._write_layer(part, x, scope)

    def _write_layer(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of layer
        self, layer: spec.Layer, x: str, scope: _Scope
    ) -> Expression:
        """Return the output of a layer for the input `x`."""

        def called(function: str, *options: str) -> Expression:
            name = scope.text(layer.name) if isinstance(layer, spec.Named) else ""
            return Expression(f"{function}({', '.join(self._arguments([layer], name, x, options))})")

        def options(**defaults: object) -> list[str]:
            texts = {name: scope.field(layer, name) for name in defaults}
            return [f"{name}={text}" for name, text in texts.items() if text != repr(defaults[name])]

        match layer:
            case spec.Conv():
                padding = [f"padding={self._padding(layer)}"] if any(layer.pads) else []
                return called("conv", *options(stride=1), *padding, *options(groups=1))
            case spec.Dense(tied=str()):
                product = f"{x} @ params[{scope.text(layer.weight_name)}].T{self._cast}"
                return Expression(product, is_call=False, needs_variable=True)
            case spec.BatchNorm():
                return called("batch_norm", *options(epsilon=1e-5, momentum=0.1))
            case spec.LayerNorm():
                return called("layer_norm", *options(epsilon=1e-5))
            case spec.GroupNorm():
                return called("group_norm", scope.field(layer, "groups"), *options(epsilon=1e-5))
            case spec.Dropout():
                if self._given_masks:
                    return called("dropout")
                return Expression(f"dropout({scope.field(layer, 'rate')}, buffers, {x}, training)")
            case spec.MaxPool() | spec.AveragePool():
                sizes = [repr(layer.size), *([repr(layer.stride)] if self._has_strides(type(layer)) else [])]
                padding = [f"padding={self._padding(layer)}"] if any(layer.pads) else []
                counts = ["count_padding=False"] if not getattr(layer, "count_padding", True) else []
                return called(str(layer.__struct_config__.tag), *sizes, *padding, *counts)
            case spec.GlobalAveragePool():
                return Expression(f"{x}.mean((2, 3))")
            case spec.ReLU() | spec.ReLU6() | spec.SiLU():
                return Expression(f"jax.nn.{layer.__struct_config__.tag}({x})")
            case spec.GELU():
                return Expression(f"jax.nn.gelu({x}{', approximate=False' if layer.approximate == 'none' else ''})")
            case spec.Flatten():
                return Expression(f"{x}.reshape(len({x}), -1)", needs_variable=True)
            case spec.MeanOverTime():
                return Expression(f"{x}.mean(1)")
            case spec.FirstPosition():
                return Expression(f"{x}[:, 0]")
            case spec.Embedding():
                cast = ".astype(jnp.bfloat16)" if self._is_bf16 else ""
                return Expression(f"params[{scope.text(f'{layer.name}.weight')}]{cast}[{x}]")
            case spec.Positions():
                rows = f"params[{scope.text(f'{layer.name}.weight')}][: {x}.shape[1]]"
                cast = f".astype({x}.dtype)" if self._is_bf16 else ""
                return Expression(f"{x} + {rows}{cast}", is_call=False, needs_variable=True)
            case spec.LSTM():
                return self._lstm(layer, called)
            case spec.Attention():
                return called("attention", scope.field(layer, "heads"), *options(causal=False))
            case spec.Dense() | spec.Patches() | spec.ClassToken():
                return called(str(layer.__struct_config__.tag))
            case _:
                raise unsupported_layer("JAX", layer)

    def _lstm(self, layer: spec.LSTM, called: Callable[..., Expression]) -> Expression:
        lstms = self._of(spec.LSTM)
        is_special = (
            layer.recurrent_activation == "hard_sigmoid" and len({one.recurrent_activation for one in lstms}) > 1
        )
        gate = ["gate=hard_sigmoid"] if is_special else []
        if not layer.bidirectional:
            outputs = called("lstm", *gate)
            return outputs if layer.sequence else outputs._replace(text=f"{outputs.text}[:, -1]")
        is_varied = len({one.sequence for one in lstms if one.bidirectional}) > 1
        return called("bidirectional_lstm", *(["sequence=True"] if is_varied and layer.sequence else []), *gate)

    def _of(self, kind: type[AnyLayer]) -> list[AnyLayer]:
        return [layer for layer in self._all if isinstance(layer, kind)]

    def _padding(self, layer: spec.Conv | spec.MaxPool | spec.AveragePool) -> str:
        """Return the padding of a layer: a number, if those of all layers of its type are."""
        return repr(layer.pads.top if self._has_equal_sides(type(layer)) else layer.pads.axes)

    def _has_equal_sides(self, kind: type[spec.Conv | spec.MaxPool | spec.AveragePool]) -> bool:
        return all(len(set(layer.pads)) == 1 for layer in self._of(kind))

    def _has_strides(self, kind: type[spec.MaxPool | spec.AveragePool]) -> bool:
        """True if windows of pools overlap or leave pixels out."""
        return any(layer.stride != layer.size for layer in self._of(kind))

    def _helpers(self) -> Iterator[Iterable[str]]:
        """Yield the functions of layers that the network uses."""
        writers: Mapping[type[spec.Layer], Callable[[], Iterable[str]]] = {
            spec.Conv: self._conv,
            spec.Dense: self._dense,
            spec.Patches: self._patches,
            spec.MaxPool: partial(self._pool, spec.MaxPool, "-jnp.inf", "lax.max"),
            spec.AveragePool: partial(self._pool, spec.AveragePool, "0.0", "lax.add"),
            spec.LayerNorm: self._layer_norm,
            spec.GroupNorm: self._group_norm,
            spec.BatchNorm: self._batch_norm,
            spec.Dropout: self._dropout,
            spec.Attention: self._attention,
            spec.ClassToken: self._class_token,
        }
        kinds = {type(layer) for layer in self._all if getattr(layer, "tied", None) is None}
        if kinds & {spec.LayerNorm, spec.GroupNorm}:
            yield [_NORMALIZE]
        if spec.Attention in kinds and self._is_float64:
            yield [_ATTENTION_IN_FLOAT64]
        if any(one.recurrent_activation == "hard_sigmoid" for one in self._of(spec.LSTM)):
            yield [_HARD_SIGMOID]
        if spec.LSTM in kinds:
            yield self._lstm_direction()
        if any(one.bidirectional for one in self._of(spec.LSTM)):
            yield self._bidirectional_lstm()
        yield from (write() for kind, write in writers.items() if kind in kinds)

    def _with_bias(self, kind: type[_Biased], y: str, bias: str, name: str = "bias", end: str = "") -> Iterator[str]:
        """Yield the lines that return `y` plus the `bias`, if layers of this type have one."""
        biases = {layer.bias for layer in self._of(kind) if getattr(layer, "tied", None) is None}
        if not end and biases == {False}:
            yield f"    return {y}"
            return
        line = f"    return {y} + {bias}"
        if biases == {True} and not end and len(line) <= WIDTH:
            yield line
            return
        if y != "y":
            yield f"    y = {y}"
        if biases == {True, False}:
            yield f'    if f"{{name}}.{name}" in params:'
            yield f"        y = y + {bias}"
        elif biases == {True} and end:
            yield f"    y = y + {bias}"
        elif biases == {True}:
            yield f"    return y + {bias}"
            return
        yield f"    return y{end}"

    def _conv(self) -> Iterator[str]:
        layers = self._of(spec.Conv)
        options, arguments = [], ["x", "weight"]
        if any(layer.stride != 1 for layer in layers):
            options.append("stride=1")
        arguments.append("(stride, stride)" if options else "(1, 1)")
        if not any(any(layer.pads) for layer in layers):
            arguments.append('"VALID"')
        elif self._has_equal_sides(spec.Conv):
            options.append("padding=0")
            arguments.append("[(padding, padding)] * 2")
        else:
            options.append('padding="VALID"')
            arguments.append("padding")
        if any(layer.groups != 1 for layer in layers):
            options.append("groups=1")
            arguments.append("feature_group_count=groups")
        yield f"def conv({', '.join(['params', 'name', 'x', *options])}):"
        yield f'    weight = params[f"{{name}}.weight"]{self._cast}'
        if not any(layer.bias for layer in layers):
            yield from wrapped("    return lax.conv_general_dilated(", arguments)
            return
        yield from wrapped("    y = lax.conv_general_dilated(", arguments)
        yield from self._with_bias(spec.Conv, "y", f'params[f"{{name}}.bias"]{self._cast}[:, None, None]')

    def _dense(self) -> Iterator[str]:
        yield "def dense(params, name, x):"
        product = f'x @ params[f"{{name}}.weight"].T{self._cast}'
        yield from self._with_bias(spec.Dense, product, f'params[f"{{name}}.bias"]{self._cast}')

    def _patches(self) -> Iterator[str]:
        yield "def patches(params, name, x):"
        yield f'    weight = params[f"{{name}}.weight"]{self._cast}'
        yield '    y = lax.conv_general_dilated(x, weight, weight.shape[2:], "VALID")'
        yield "    y = y.reshape(*y.shape[:2], -1).swapaxes(1, 2)  # (batch, patches, features)"
        yield from self._with_bias(spec.Patches, "y", f'params[f"{{name}}.bias"]{self._cast}')

    def _pool(self, kind: type[spec.MaxPool | spec.AveragePool], start: str, function: str) -> Iterator[str]:
        layers, windows, options = self._of(kind), ["window", "window", '"VALID"'], []
        lines = ["    window = (1, 1, size, size)"]
        if self._has_strides(kind):
            options.append("stride")
            windows[1] = "(1, 1, stride, stride)"
        if any(any(layer.pads) for layer in layers):
            is_number = self._has_equal_sides(kind)
            options.append("padding=0" if is_number else "padding=((0, 0), (0, 0))")
            sides = "(padding, padding), (padding, padding)" if is_number else "*padding"
            lines.append(f"    pads = ((0, 0), (0, 0), {sides})")
            windows[2] = "pads"
        pooled = wrapped("    y = lax.reduce_window(", ["x", start, function, *windows])
        if kind is spec.MaxPool:
            lines += wrapped("    return lax.reduce_window(", ["x", start, function, *windows])
        elif all(getattr(layer, "count_padding", True) for layer in layers):
            lines += [*pooled, "    return y / size**2"]
        else:
            options.append("count_padding=True")
            ones = wrapped("    counts = lax.reduce_window(", ["ones", start, function, *windows])
            lines += [*pooled, "    if count_padding:", "        return y / size**2"]
            lines += ["    ones = jnp.ones((1, 1, *x.shape[2:]), x.dtype)", *ones, "    return y / counts"]
        yield f"def {kind.__struct_config__.tag}({', '.join(['x', 'size', *options])}):"
        yield from lines

    def _layer_norm(self) -> Iterator[str]:
        x, end = ("x.astype(DTYPE)", self._cast) if self._is_bf16 else ("x", "")
        yield "def layer_norm(params, name, x, epsilon=1e-5):"
        product = f'normalize({x}, epsilon) * params[f"{{name}}.weight"]'
        yield from self._with_bias(spec.LayerNorm, product, 'params[f"{name}.bias"]', end=end)

    def _group_norm(self) -> Iterator[str]:
        x, end = ("x.astype(DTYPE)", self._cast) if self._is_bf16 else ("x", "")
        yield "def group_norm(params, name, x, groups, epsilon=1e-5):"
        yield '    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]'
        yield f"    y = normalize({x}.reshape(len(x), groups, -1), epsilon).reshape(x.shape)"
        y = "weight[:, None, None] * y + bias[:, None, None]"
        yield from [f"    y = {y}", f"    return y{end}"] if end else [f"    return {y}"]

    def _batch_norm(self) -> Iterator[str]:
        yield "def batch_norm(params, buffers, name, x, training, epsilon=1e-5, momentum=0.1):"
        yield '    """Use the batch\'s statistics in training, and move the running ones towards them."""'
        axes, shape = ("(0, 2, 3)", "[:, None, None]")
        if not self._has_images_only:
            yield "    axes, shape = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))"
            axes, shape = "axes", ".reshape(shape)"
        x = "x"
        if self._is_bf16:
            yield "    full = x.astype(DTYPE)"
            x = "full"
        yield '    mean, var = buffers[f"{name}.running_mean"], buffers[f"{name}.running_variance"]'
        yield "    if training:"
        yield f"        new_mean, new_var = {x}.mean({axes}), {x}.var({axes})"
        yield "        n = x.size // x.shape[1]"
        yield "        unbiased = new_var * (n / (n - 1))"
        yield '        buffers[f"{name}.running_mean"] = (1 - momentum) * mean + momentum * new_mean'
        yield '        buffers[f"{name}.running_variance"] = (1 - momentum) * var + momentum * unbiased'
        yield "        mean, var = new_mean, new_var"
        yield '    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]'
        yield from wrapped("    mean, var, weight, bias = (", [f"one{shape} for one in (mean, var, weight, bias)"])
        y = f"weight * ({x} - mean) * lax.rsqrt(var + epsilon) + bias"
        yield from [f"    y = {y}", "    return y.astype(x.dtype)"] if self._is_bf16 else [f"    return {y}"]

    def _dropout(self) -> Iterable[str]:
        return [_GIVEN_DROPOUT.format(cast=self._cast) if self._given_masks else _DROPOUT]

    def _lstm_direction(self) -> Iterator[str]:
        layers = self._of(spec.LSTM)
        gates, biases = {layer.recurrent_activation for layer in layers}, {layer.biases for layer in layers}
        reverse, gate = any(layer.bidirectional for layer in layers), "jax.nn.sigmoid"
        options = ['direction=""'] if reverse else []
        if gates == {"hard_sigmoid"}:
            gate = "hard_sigmoid"
        elif len(gates) > 1:
            options, gate = [*options, "gate=jax.nn.sigmoid"], "gate"
        name = "{name}.{direction}" if reverse else "{name}."
        yield f"def lstm({', '.join(['params', 'name', 'x', *options])}):"
        yield '    """Return the outputs (batch, time, units); gates: input, forget, cell, output."""'
        yield f'    recurrent = params[f"{name}recurrent"].T{self._cast}'
        yield f'    inputs = x @ params[f"{name}weight"].T{self._cast}'
        yield f'    inputs = inputs + params[f"{name}bias"]{self._cast}'
        second = f'inputs = inputs + params[f"{name}recurrent_bias"]{self._cast}'
        if biases == {2}:
            yield f"    {second}"
        elif len(biases) > 1:
            yield f'    if f"{name}recurrent_bias" in params:'
            yield f"        {second}"
        yield from _LSTM.format(gate=gate).splitlines()

    def _bidirectional_lstm(self) -> Iterator[str]:
        layers = [layer for layer in self._of(spec.LSTM) if layer.bidirectional]
        outputs = {layer.sequence for layer in layers}
        options = ["sequence=False"] if len(outputs) > 1 else []
        gates = {layer.recurrent_activation for layer in self._of(spec.LSTM)}
        gate = ""
        if len(gates) > 1:
            options, gate = [*options, "gate=jax.nn.sigmoid"], ", gate=gate"
        yield f"def bidirectional_lstm({', '.join(['params', 'name', 'x', *options])}):"
        yield f"    forwards = lstm(params, name, x{gate})"
        yield f'    backwards = lstm(params, name, x[:, ::-1], "{REVERSE}"{gate})'
        every = "return jnp.concatenate([forwards, backwards[:, ::-1]], axis=-1)"
        if len(outputs) > 1:
            yield "    if sequence:"
            yield f"        {every}"
        if outputs == {True}:
            yield f"    {every}"
        else:
            yield "    return jnp.concatenate([forwards[:, -1], backwards[:, -1]], axis=-1)"

    def _attention(self) -> Iterator[str]:
        function = "dot_product_attention" if self._is_float64 else "jax.nn.dot_product_attention"
        yield "def attention(params, name, x, heads, causal=False):"
        yield "    def project(kind, x):"
        product = f'x @ params[f"{{name}}.{{kind}}_weight"].T{self._cast}'
        bias = f'params[f"{{name}}.{{kind}}_bias"]{self._cast}'
        yield from (f"    {line}" for line in self._with_bias(spec.Attention, product, bias, "{kind}_bias"))
        yield ""
        yield "    shape = (*x.shape[:2], heads, -1)"
        yield '    q, k, v = (project(kind, x).reshape(shape) for kind in ("query", "key", "value"))'
        yield f"    y = {function}(q, k, v, is_causal=causal)"
        yield '    return project("output", y.reshape(x.shape))'

    def _class_token(self) -> Iterator[str]:
        yield "def class_token(params, name, x):"
        yield f'    token = params[f"{{name}}.token"]{self._cast}'
        yield "    tokens = jnp.broadcast_to(token, (len(x), 1, len(token)))"
        yield "    return jnp.concatenate([tokens, x], axis=1)"


def has_buffers(layers: Sequence[spec.Layer]) -> bool:
    """Return True if training changes more than weights: running statistics, or the random key of dropout."""
    return any(isinstance(layer, spec.BatchNorm | spec.Dropout) for layer in spec.walk(layers))
