"""Writes a network as classes of PyTorch.

This module does not import PyTorch. ADD A LAYER: its case in `_code`, and in `_TENSORS` if PyTorch names its tensors
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from keyword import iskeyword
from typing import NamedTuple

from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Part, Stage, blocks_of, is_size, ordered_parameters, parts
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE
from polybench.networks.source_text import attributes, docstring, escape_in_braces, literal, wrapped
from polybench.networks.statements import Expression, Statements

_RESERVED = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes of every `nn.Module`; a test compares them with PyTorch's."""

_OVERWRITABLE = (spec.BatchNorm, spec.Residual)
"""Layers whose output the next ReLU or addition may overwrite, as in torchvision's ResNets.

Their output is a separate tensor that no backward pass reads. Overwriting would also be correct after
convolutions, but is not faster in `lenet` and `dlframeworks-cnn`, and is not common practice.
"""

Field = Callable[[str], str]
"""The text of a layer's field: a number, or the parameter of its block."""

_TENSORS: Mapping[type[spec.Layer], Mapping[str, str]] = {
    spec.BatchNorm: {"running_variance": "running_var"},
    spec.LSTM: {
        f"{reverse}{tensor}": f"{name}_l0{'_reverse' if reverse else ''}"
        for reverse in ("", REVERSE)
        for tensor, name in (
            ("weight", "weight_ih"), ("recurrent", "weight_hh"), ("bias", "bias_ih"), ("recurrent_bias", "bias_hh"),
        )
    },
    spec.Positions: {"weight": ""},
    spec.ClassToken: {"token": ""},
}  # fmt: skip
"""PyTorch's name of a canonical tensor where it differs; "" if the attribute itself is the tensor."""

_ATTENTION = """class SelfAttention(nn.Module):
    def __init__(self, features, heads, causal=False, bias=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query_key_value = nn.Linear(features, 3 * features, bias=bias)
        self.output = nn.Linear(features, features, bias=bias)

    def forward(self, x):
        batch, time, features = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, features // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).split(features, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(batch, time, features))"""
_GIVEN_DROPOUT = '''class GivenDropout(nn.Module):
    """Dropout with the mask of `set_masks`."""

    def forward(self, x):
        return x * self.mask.to(x.dtype) if self.training else x'''


_TAKEN = (
    *("Network", "SelfAttention", "GivenDropout", "State", "F", "Path", "DistributedDataParallel"),
    *("DTYPE", "DEVICE", "SEED", "NAMES", "STEPS"),
)
"""Names in the program that a class could have."""

Fields = Mapping[tuple[str, str], str]
"""Parameters that stand for fields of layers: ("conv1", "inputs") -> "channels"."""


class _Code(NamedTuple):
    """A layer in PyTorch.

    Attributes:
        made: the attribute that a class has for it, without the arguments; "" for a function.
        arguments: of `made`.
        called: its output, with `{x}` for the input and `{self}` for the attribute.
        after: lines of the constructor after `made`, with `{self}`.
        before: a line before `called`, with the same names.
        is_call: False for a sum, which cannot be a part of another expression.
        uses_x_twice: True if the input must be a variable.
    """

    made: str = ""
    arguments: Sequence[str] = ()
    called: str = "{self}({x})"
    after: Sequence[str] = ()
    before: str = ""
    is_call: bool = True
    uses_x_twice: bool = False


class NetworkCode:
    """The classes of a network, and the places of its tensors in them.

    With `given_masks`, dropout layers are `GivenDropout`.
    """

    def __init__(self, layers: Sequence[spec.Layer], shape: spec.Shape, *, given_masks: bool = False) -> None:
        self._layers, self._given_masks = layers, given_masks
        self._ranks = {
            layer.name: len(before)
            for layer, before, _ in spec.layer_shapes(layers, shape)
            if isinstance(layer, spec.Named)
        }
        self._parts = parts(layers, shape, _TAKEN)
        self._block_names = _block_names(self._parts)
        local = [_local(layer.name, prefix) for layer, prefix in _named(self._parts)]
        self._attributes = attributes(dict.fromkeys([*local, *self._block_names.values()]), _is_reserved)
        self._paths = dict(self._located())
        self._renaming = self._find_renaming()

    def text(self, summary: str = "") -> str:
        """Return the classes; the last one is `Network`."""
        layers = list(spec.walk(self._layers))
        classes = [_ATTENTION] * any(isinstance(layer, spec.Attention) for layer in layers)
        if self._given_masks and any(isinstance(layer, spec.Dropout) for layer in layers):
            classes.append(_GIVEN_DROPOUT)
        kinds = {block.kind.name: block.kind for part in self._parts for block in blocks_of(part)}
        for kind in kinds.values():
            made = list(self._made(kind.layers, kind.prefix, kind.fields))
            forward = self._forward(kind.layers, kind.prefix, kind.fields)
            classes.append(_class(kind.name, "", ordered_parameters(kind.fields.values()), made, forward))
        made = [line for part in self._parts for line in self._made_part(part)]
        classes.append(_class("Network", summary, (), made, self._forward(self._parts, "", {})))
        return "\n\n\n".join(classes)

    def named(self, state: str) -> str:
        """Return the expression of a dictionary of tensors by canonical name, from that of a state dictionary."""
        return f"canonical({state})" if self._renaming.is_needed else state

    def names(self) -> Iterator[str]:
        """Yield the function `canonical`, if PyTorch's names are not those of polybench."""
        if self._renaming.is_needed:
            yield "\n".join(self._renaming.text())

    def masks(self, module: str) -> Iterator[str]:
        """Yield the function `set_masks`, if masks are given."""
        if self._given_masks:
            dropouts = [layer.name for layer in spec.walk(self._layers) if isinstance(layer, spec.Dropout)]
            table = [f"{literal(name)}: {_expression(module, self._paths[name])}" for name in dropouts]
            yield "\n".join([
                "def set_masks(state, masks):",
                '    """Set the masks of the next forward pass, by the names of dropout layers."""',
                *wrapped("    layers = {", table, "}"),
                "    for name, mask in masks.items():",
                "        layers[name].mask = mask",
            ])  # fmt: skip

    def _made_part(self, part: Part) -> Iterator[str]:
        """Yield the lines of the constructor of `Network` for a part."""
        if isinstance(part, Stage | Block):
            start = f"        self.{self._attributes[self._block_names[part.name]]} = "
            if isinstance(part, Block):
                yield f"{start}{_construction(part)}"
                return
            groups = [(made, len(list(equal))) for made, equal in groupby(map(_construction, part.blocks))]
            blocks = [f"*[{made} for _ in range({n})]" if n > 1 else made for made, n in groups]
            yield from wrapped(f"{start}nn.Sequential(", blocks)
        else:
            yield from self._made([part], "", {})

    def _made(self, layers: Iterable[spec.Layer], prefix: str, fields: Fields) -> Iterator[str]:
        """Yield the lines of a constructor."""
        for layer in spec.walk(list(layers)):
            if isinstance(layer, spec.Named):
                code = self._code(layer, fields)
                attribute = f"self.{self._attributes[_local(layer.name, prefix)]}"
                if code.made:
                    yield from wrapped(f"        {attribute} = {code.made}(", code.arguments)
                yield from (f"        {line.format(self=attribute)}" for line in code.after)

    def _forward(self, layers: Sequence[Part], prefix: str, fields: Fields) -> list[str]:
        """Return the lines of a forward pass."""

        def write(part: Part, x: str, in_place: bool) -> Expression:
            code = _Code() if isinstance(part, Block | Stage) else self._code(part, fields, in_place=in_place)
            name = f"self.{self._attribute(part, prefix)}" if isinstance(part, spec.Named | Block | Stage) else ""
            before = [code.before.format(x=x, self=name)] if code.before else []
            return Expression(code.called.format(x=x, self=name), before, code.is_call, code.uses_x_twice)

        return Statements(write, " " * 8, _OVERWRITABLE).forward(layers)

    def _attribute(self, layer: spec.Named | Block | Stage, prefix: str) -> str:
        if isinstance(layer, Block | Stage):
            return self._attributes[self._block_names[layer.name]]
        return self._attributes[_local(layer.name, prefix)]

    def _code(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of layer
        self, layer: spec.Layer, fields: Fields, *, in_place: bool = False
    ) -> _Code:
        """Return a layer's code; with `in_place`, a ReLU may overwrite its input."""

        def field(name: str) -> str:
            return fields.get((getattr(layer, "name", ""), name)) or repr(getattr(layer, name))

        def options(**defaults: object) -> list[str]:
            return [f"{name}={field(name)}" for name, default in defaults.items() if field(name) != repr(default)]

        match layer:
            case spec.Conv():
                padding, called = _own_padding(layer), "{self}({x})"
                if padding is None:
                    padding, called = "0", f"{{self}}(F.pad({{x}}, {layer.pads.width_first}))"
                sizes = [field(name) for name in ("inputs", "outputs", "kernel")]
                padded = [f"padding={padding}"] if padding != "0" else []
                return _Code("nn.Conv2d", [*sizes, *options(stride=1), *padded, *options(groups=1, bias=True)], called)
            case spec.Patches():
                sizes = [field(name) for name in ("inputs", "outputs", "size")]
                arguments = [*sizes, f"stride={field('size')}", *options(bias=True)]
                return _Code("nn.Conv2d", arguments, "{self}({x}).flatten(2).transpose(1, 2)")
            case spec.Dense(tied=str() as tied):
                return _Code(called=f"F.linear({{x}}, {self._weight(tied)})")
            case spec.Dense():
                return _Code("nn.Linear", [field("inputs"), field("outputs"), *options(bias=True)])
            case spec.BatchNorm():
                kind = "BatchNorm1d" if self._ranks[layer.name] == 1 else "BatchNorm2d"
                epsilon = [f"eps={layer.epsilon!r}"] if layer.epsilon != 1e-5 else []
                return _Code(f"nn.{kind}", [field("channels"), *epsilon, *options(momentum=0.1)])
            case spec.LayerNorm():
                epsilon = [f"eps={layer.epsilon!r}"] if layer.epsilon != 1e-5 else []
                return _Code("nn.LayerNorm", [field("features"), *epsilon, *options(bias=True)])
            case spec.GroupNorm():
                epsilon = [f"eps={layer.epsilon!r}"] if layer.epsilon != 1e-5 else []
                return _Code("nn.GroupNorm", [field("groups"), field("channels"), *epsilon])
            case spec.Dropout():
                return _Code("GivenDropout") if self._given_masks else _Code("nn.Dropout", [field("rate")])
            case spec.MaxPool() | spec.AveragePool():
                return _pool(layer)
            case spec.GlobalAveragePool():
                return _Code(called="F.adaptive_avg_pool2d({x}, 1).flatten(1)")
            case spec.ReLU() | spec.ReLU6():
                return _Code(called=f"F.{layer.__struct_config__.tag}({{x}}{', inplace=True' if in_place else ''})")
            case spec.SiLU():
                return _Code(called="F.silu({x})")
            case spec.GELU():
                approximate = f", approximate={literal(layer.approximate)}" if layer.approximate != "none" else ""
                return _Code(called=f"F.gelu({{x}}{approximate})")
            case spec.Flatten():
                return _Code(called="{x}.flatten(1)")
            case spec.MeanOverTime():
                return _Code(called="{x}.mean(dim=1)")
            case spec.FirstPosition():
                return _Code(called="{x}[:, 0]")
            case spec.Embedding():
                return _Code("nn.Embedding", [field("vocabulary"), field("features")])
            case spec.Positions():
                table = f"torch.zeros({field('length')}, {field('features')})"
                return _Code("nn.Parameter", [table], "{x} + {self}[: {x}.shape[1]]", is_call=False, uses_x_twice=True)
            case spec.ClassToken():
                called = "torch.cat([{self}.expand(len({x}), 1, -1), {x}], dim=1)"
                return _Code("nn.Parameter", [f"torch.zeros({field('features')})"], called, uses_x_twice=True)
            case spec.Attention():
                return _Code("SelfAttention", [field("features"), field("heads"), *options(causal=False, bias=True)])
            case spec.LSTM():
                return _lstm(layer, field, options(bidirectional=False))
            case _:
                raise unsupported_layer("PyTorch", layer)

    def _weight(self, name: str) -> str:
        """Return the expression of the weight of a layer, in `Network`."""
        (kind,) = {type(layer) for layer in spec.walk(self._layers) if getattr(layer, "name", "") == name}
        weight = _TENSORS.get(kind, {}).get("weight", "weight")
        return _expression("self", f"{self._paths[name]}.{weight}".removesuffix("."))

    def _located(self) -> Iterator[tuple[str, str]]:
        """Yield each layer's name, and its place in `Network`: `stage1.0.conv1`."""
        for part in self._parts:
            if isinstance(part, Stage | Block):
                attribute = self._attributes[self._block_names[part.name]]
                for number, block in enumerate(blocks_of(part)):
                    place = f"{attribute}.{number}" if isinstance(part, Stage) else attribute
                    for layer, prefix in _named([block]):
                        local = _local(layer.name, prefix)
                        yield f"{block.prefix}.{local}", f"{place}.{self._attributes[local]}"
            else:
                yield from ((layer.name, self._attributes[layer.name]) for layer, _ in _named([part]))

    def _keys(self) -> Iterator[tuple[str, str]]:
        """Yield the key of each tensor in the state dictionary, with its canonical name; attention packs three."""
        for layer in spec.walk(self._layers):
            if not isinstance(layer, spec.Named):
                continue
            path, names = self._paths[layer.name], _TENSORS.get(type(layer), {})
            for tensor in layer.weight_shapes() | layer.state_shapes():
                name = names.get(tensor, tensor)
                if isinstance(layer, spec.Attention):
                    projection, _, kind = tensor.partition("_")
                    name = f"output.{kind}" if projection == "output" else f"query_key_value.{kind}"
                yield f"{path}.{name}".removesuffix("."), f"{layer.name}.{tensor}"

    def _find_renaming(self) -> _Renaming:
        keys = list(self._keys())
        found = {attribute: name for name, attribute in self._attributes.items() if name != attribute}
        attentions = []
        for layer, prefix in _named(self._parts):
            attribute = self._attributes[_local(layer.name, prefix)]
            existing = layer.weight_shapes() | layer.state_shapes()
            names = {tensor: name for tensor, name in _TENSORS.get(type(layer), {}).items() if tensor in existing}
            for tensor, name in names.items():
                found |= {name: tensor} if name else {attribute: f"{found.get(attribute, attribute)}.{tensor}"}
            if isinstance(layer, spec.Attention) and (name := found.get(attribute, attribute)) not in attentions:
                attentions.append(name)
        for part in self._parts:
            if isinstance(part, Stage):
                found.pop(self._attributes[self._block_names[part.name]], None)
        renaming = _Renaming(found, tuple(self._numbers()), tuple(attentions))
        if all(name in renaming.canonical(key) for key, name in keys):
            return renaming
        table = {
            key: f"{name.rpartition('.')[0]}{_PACKED}{key.rpartition('.')[2]}" for key, name in keys if _PACKED in key
        }
        return _Renaming({}, (), attentions and ("",), dict(keys) | table)

    def _numbers(self) -> Iterator[_Number]:
        """Yield the rules for blocks whose numbers differ from those of PyTorch's `nn.Sequential`."""
        stages = [
            (self._attributes[self._block_names[part.name]], part) for part in self._parts if isinstance(part, Stage)
        ]
        series = {(stage.base, stage.first) for _, stage in stages}
        if len(series) == 1 and all(attribute == stage.parent for attribute, stage in stages):
            ((base, first),) = series
            if base or first:
                yield _Number(r"\.(\d+)\.", f".{base}", first, ".")
            return
        for attribute, stage in stages:
            prefix = f"{stage.parent}.{stage.base}" if stage.parent else stage.base
            yield _Number(rf"^{attribute}\.(\d+)", prefix, stage.first, "")


_PACKED = ".query_key_value."


class _Number(NamedTuple):
    """Rule for the number of a block: what matches `pattern` becomes `before`, number + `first`, `after`."""

    pattern: str
    before: str
    first: int
    after: str

    def replaced(self, key: str) -> str:
        """Return the key after the rule."""
        return re.sub(self.pattern, lambda match: f"{self.before}{int(match[1]) + self.first}{self.after}", key)

    def text(self) -> list[str]:
        """Return the lines that do so for the variable `name`."""
        number = f"{{int(match[1]) + {self.first}}}" if self.first else "{match[1]}"
        before = escape_in_braces(self.before)
        arguments = [f'r"{self.pattern}"', f'lambda match: f"{before}{number}{self.after}"', "name"]
        return wrapped("        name = re.sub(", arguments)


class _Renaming(NamedTuple):
    """The way from keys of a state dictionary to canonical names.

    Attributes:
        parts: names between the dots of a key.
        numbers: rules for the numbers of blocks.
        attentions: attributes of attention, whose `query_key_value` has three tensors.
        table: names by key, if these rules are not enough.
    """

    parts: Mapping[str, str]
    numbers: Sequence[_Number]
    attentions: Sequence[str]
    table: Mapping[str, str] = {}

    @property
    def is_variance(self) -> bool:
        """True if only the running variance of batch norm has another name."""
        return self.parts == {"running_var": "running_variance"}

    @property
    def is_needed(self) -> bool:
        """True if any name differs."""
        return any(self)

    def canonical(self, key: str) -> set[str]:
        """Return the names of a key, as the function of `text` does."""
        name = key
        for number in self.numbers:
            name = number.replaced(name)
        if self.is_variance:
            name = re.sub(r"\.running_var$", ".running_variance", name)
        else:
            name = ".".join(self.parts.get(part, part) for part in name.split("."))
        for attention in self.attentions:
            name = name.replace(f"{attention}.output.", f"{attention}.output_")
        if self.attentions and _PACKED in name:
            return {name.replace(_PACKED, f".{part}_") for part in PROJECTIONS[:3]}
        return {name}

    def text(self) -> Iterator[str]:
        """Yield the lines of the function `canonical`, and of the table that it reads."""
        names = self.table or ({} if self.is_variance else self.parts)
        if names:
            yield "NAMES = {"
            yield from (f"    {literal(key)}: {literal(name)}," for key, name in names.items())
            yield "}"
            yield ""
            yield ""
        yield "def canonical(tensors):"
        yield '    """Name the tensors of a state dictionary as polybench does."""'
        yield "    named = {}"
        yield "    for name, tensor in tensors.items():"
        for number in self.numbers:
            yield from number.text()
        if self.is_variance:
            yield r'        name = re.sub(r"\.running_var$", ".running_variance", name)'
        elif self.table:
            yield "        name = NAMES.get(name, name)"
        elif self.parts:
            yield '        name = ".".join(NAMES.get(part, part) for part in name.split("."))'
        for attention in filter(None, self.attentions):
            old, new = literal(f"{attention}.output."), literal(f"{attention}.output_")
            yield f"        name = name.replace({old}, {new})"
        if self.attentions:
            yield f'        if "{_PACKED}" in name:'
            yield '            for part, rows in zip(("query", "key", "value"), tensor.chunk(3)):'
            yield f'                named[name.replace("{_PACKED}", f".{{part}}_")] = rows'
            yield "            continue"
        yield "        named[name] = tensor"
        yield "    return named"


def _own_padding(layer: spec.Conv | spec.MaxPool | spec.AveragePool) -> str | None:
    """Return the padding of PyTorch's layer; None if it has no such padding, which `F.pad` adds."""
    if layer.pads.symmetric is None or (not isinstance(layer, spec.Conv) and max(layer.pads) > layer.size // 2):
        return None
    return str(layer.pads.padding if isinstance(layer.pads.padding, int) else layer.pads.symmetric)


def _pool(layer: spec.MaxPool | spec.AveragePool) -> _Code:
    name = "max" if isinstance(layer, spec.MaxPool) else "avg"
    window = str(layer.size) if layer.stride == layer.size else f"{layer.size}, {layer.stride}"
    counts, padding = getattr(layer, "count_padding", True), _own_padding(layer)
    if padding is not None:
        options = f", padding={padding}" if any(layer.pads) else ""
        called = f"F.{name}_pool2d({{x}}, {window}{options}{'' if counts else ', count_include_pad=False'})"
        return _Code(called=called)
    value = ", value=-torch.inf" if isinstance(layer, spec.MaxPool) else ""
    pooled = f"F.{name}_pool2d(F.pad({{}}, {layer.pads.width_first}{value}), {window})"
    if counts:
        return _Code(called=pooled.format("{x}"))
    before = f"pixels = {pooled.format('torch.ones_like({x}[:1, :1])')}"
    return _Code(called=f"{pooled.format('{x}')} / pixels", before=before, is_call=False, uses_x_twice=True)


def _lstm(layer: spec.LSTM, field: Field, bidirectional: Sequence[str]) -> _Code:
    if layer.recurrent_activation != "sigmoid":
        raise unsupported_layer("PyTorch", layer, f'recurrent_activation = "{layer.recurrent_activation}"')
    biases = [_TENSORS[spec.LSTM][f"{direction}recurrent_bias"] for direction in layer.directions]
    after = [f"nn.init.zeros_({{self}}.{bias}).requires_grad_(False)" for bias in biases]
    arguments = [field("inputs"), field("units"), "batch_first=True", *bidirectional]
    after = ["# One bias is trained; PyTorch's second one stays zero.", *after] if layer.biases == 1 else []
    if layer.sequence:
        return _Code("nn.LSTM", arguments, "{self}({x})[0]", after)
    last = "torch.cat([hidden[0], hidden[1]], dim=1)" if layer.bidirectional else "hidden[0]"
    return _Code("nn.LSTM", arguments, last, after, before="_, (hidden, _) = {self}({x})")


def _class(name: str, summary: str, parameters: Sequence[str], made: Sequence[str], forward: Sequence[str]) -> str:
    """Return the code of a module."""
    lines = [f"class {name}(nn.Module):"]
    if summary:
        lines += [*docstring(summary), ""]
    if made:
        constructor = [f"    def __init__({', '.join(['self', *parameters])}):", "        super().__init__()"]
        lines += [*constructor, *made, ""]
    return "\n".join([*lines, "    def forward(self, x):", *forward])


def _construction(block: Block) -> str:
    """Return the call that makes a block; sizes are positional."""
    arguments = [
        f"{block.arguments[name]!r}" if is_size(name) else f"{name}={block.arguments[name]!r}"
        for name in ordered_parameters(block.arguments)
    ]
    return f"{block.kind.name}({', '.join(arguments)})"


def _expression(root: str, path: str) -> str:
    """Return the expression of a module: `self.stage1[0].conv1`."""
    return root + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def _local(name: str, prefix: str) -> str:
    """Return a layer's name inside of its block."""
    return name.removeprefix(f"{prefix}.") if prefix else name


def _named(all_parts: Sequence[Part]) -> Iterator[tuple[spec.Named, str]]:
    """Yield the layers with names and the prefix of their block; those of a kind once for each block."""
    for part in all_parts:
        groups: list[tuple[Sequence[spec.Layer], str]]
        if isinstance(part, Stage | Block):
            groups = [(block.kind.layers, block.kind.prefix) for block in blocks_of(part)]
        else:
            groups = [((part,), "")]
        for layers, prefix in groups:
            yield from ((layer, prefix) for layer in spec.walk(layers) if isinstance(layer, spec.Named))


def _block_names(all_parts: Sequence[Part]) -> dict[str, str]:
    """Return a name for each stage and each single block, which no layer of the network has."""
    taken = {_local(layer.name, prefix) for layer, prefix in _named(all_parts)}
    names = {}
    for part in all_parts:
        if isinstance(part, Stage | Block):
            name = (
                part.prefix if isinstance(part, Block) else part.parent or (f"{part.base}s" if part.base else "blocks")
            )
            while name in taken:
                name = f"{name}_blocks"
            taken.add(name)
            names[part.name] = name
    return names


def _is_reserved(name: str) -> bool:
    return iskeyword(name) or name in _RESERVED or name == "query_key_value"
