"""PyTorch: reads the graph of ATen operations of `torch.export`.

Operations that only move values (views, transpositions, slices) are not layers. A value is a node and, for each of its
elements, the position in the node's output. Such operations run on these positions, and what they do together is
recognized where the next layer reads the value: nothing, a flatten layer, patches, heads of attention, and so on.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from polybench.errors import BadInput
from polybench.importer.graph import Names, Node, Slot, Source, Translation, build
from polybench.importer.torch_module import (
    check_backward,
    check_module,
    explained,
    run_forward,
    run_on_tokens,
    training,
)
from polybench.networks import layers as spec

BATCH = 2
"""Batch size of the exported program; batch norm needs two."""

_MOVES = {
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "transpose", "permute", "movedim", "t", "numpy_T",
    "contiguous", "clone", "alias", "expand", "squeeze", "unsqueeze", "select", "slice", "narrow", "index", "split",
    "split_with_sizes", "chunk", "unbind", "getitem",
}  # fmt: skip
"""Operations that move values, and compute nothing."""

_HINT = "docs/networks.md lists the layers that exist"
_ATTENTION_HINT = "for attention, use F.scaled_dot_product_attention, or need_weights=False of nn.MultiheadAttention"
_HINTS = {
    "bmm": _ATTENTION_HINT,
    "baddbmm": _ATTENTION_HINT,
    "mul": f"scale the data instead; {_ATTENTION_HINT}",
    "div": f"scale the data instead; {_ATTENTION_HINT}",
    "sub": "shift the data instead",
    "wrap_with_set_grad_enabled": "its weights have no gradient: remove torch.no_grad()",
    "wrap_with_autocast": "remove torch.autocast: --precision bf16 is the precision of a whole network",
}
"""The way out, by operation."""

_READS_BUFFERS = {"batch_norm"}
"""Operations whose buffers are state that training changes; elsewhere, buffers are constants."""

_X = {"self": "x", "input": "x"}
"""Names of arguments, where a translation's differ from the schema's."""


class Value(NamedTuple):
    """A tensor of the program: the elements `index` (int64) of the flattened output of a node, or of a parameter."""

    base: Node | str
    index: Any


@dataclass(eq=False)
class Heads(Node):
    """The output of attention before its output projection, (time, features) with the heads side by side."""

    attention: Callable[[str, bool], spec.Attention] = field(kw_only=True)


class Operation(NamedTuple):
    """How an operation becomes a layer.

    The parameters of `translate` are the arguments that it reads, named as in the operation's schema; `self` and
    `input` are x. Any other argument has the value in `expected`, or else its default; otherwise it is refused.
    """

    translate: Callable[..., Any]
    expected: Mapping[str, Any] = MappingProxyType({})


ANY: Any = object()
"""The expected value of an argument that changes nothing in what is computed."""

Operations = Mapping[str, Operation]


def translate(module: Any, input_shape: spec.Shape, file: Path | None, operations: Operations) -> Translation:
    """Translate a `torch.nn.Module` for inputs of `input_shape`: images, a sequence of features, or (time,) tokens.

    `file` is the user's file, whose lines errors name. BadInput has the operation that has no layer, and its line.
    """
    check_module(module)
    shape = (BATCH, *input_shape)
    dtype = next((one.dtype for one in module.parameters()), None)
    features = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    has_tokens = len(input_shape) == 1
    example: Any = torch.zeros(shape, dtype=torch.int64) if has_tokens else features
    with explained("import", module, file), training(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export warns about nn.LSTM
        with explained("forward", module, file):
            forward = run_on_tokens(module, example, features) if has_tokens else run_forward(module, example)
        with explained("torch.export", module, file):
            exported = torch.export.export(module, (example,), strict=False)
        reader = Reader(module, exported, input_shape, file, operations)
        translation = reader.read()
        for name in forward.changed & reader.constants_read.keys():
            raise reader.constants_read[name].error(f"the forward pass changes {name}: expected a constant")
        with explained("backward", module, file):
            check_backward(module, forward.output)
    return translation


class Reader:
    """Reads the exported graph from the first operation to the last."""

    def __init__(
        self, module: Any, exported: Any, shape: spec.Shape, file: Path | None, operations: Operations
    ) -> None:
        self._operations = operations
        self._graph, self._signature, self._file = exported.graph, exported.graph_signature, file
        self.shape, self.names = shape, Names()
        first: dict[int, str] = {}
        self._names = {
            name: first.setdefault(id(p), name) for name, p in module.named_parameters(remove_duplicate=False)
        }
        self.parameters = dict(module.named_parameters())
        self._constants = {**dict(module.named_buffers()), **exported.constants}
        self.owners: dict[str, Node] = {}
        """The layer that has each weight."""
        self.notes: dict[str, None] = {}
        self.constants_read: dict[str, Source] = {}
        """The operation that reads each buffer as a constant."""
        self.frozen_zeros: set[str] = set()
        """Weights that are zero and not trained, and that no layer has."""
        self.logits: Node | None = None
        """The input of the softmax or log-softmax that `softmax` is."""
        self._settled: dict[tuple[Node, str], Node] = {}
        self._model = type(module).__name__
        self.source = self.softmax = Source("input", self._model)

    def read(self) -> Translation:
        """Return the translation of the whole graph."""
        start = Node(None, (), self.shape, self.source)
        result = self._values(start)
        if not is_value(result):
            raise BadInput(f"{self._model}: the output does not depend on the input")
        output = self.settle(result)
        if self.logits not in (None, output):
            raise self.softmax.error("a softmax before the end: expected it last, over the classes")
        end = self.softmax.operation if output is self.logits else ""
        translation = build(output, start, self._model, self.notes, returns_probabilities=end == "softmax")
        translation.check_complete(self._trained())
        return translation._replace(returns_log_probabilities=end == "log_softmax")

    def _values(self, start: Node) -> Any:
        """Read all operations that the output depends on; return the output's value."""
        values: dict[Any, Any] = {}
        needed = self._needed()
        self._check_views()
        for node in self._graph.nodes:
            if node not in needed:
                continue
            if node.op == "placeholder":
                values[node] = self._placeholder(node.name, start)
            elif node.op == "get_attr":
                values[node] = self._constants.get(node.target)  # or the operations of a block
            elif node.op == "call_function":
                self.source = self._locate(node)
                try:
                    self._run(node, values)
                except BadInput:
                    raise
                except Exception as error:  # of an operation on values that it cannot have
                    raise self.error(f"cannot be read: {str(error).partition(chr(10))[0]}") from error
        return values.get(_output(node))

    def _needed(self) -> set[Any]:
        """Return the nodes that the output depends on; others do not belong to the network."""
        *nodes, output = self._graph.nodes
        needed = {output, _output(output)}
        for node in reversed(nodes):
            if node in needed or (_overwrites(node) and node.args[0] in needed):
                needed |= {node, *node.all_input_nodes}
        return needed

    def _check_views(self) -> None:
        """Raise BadInput if an operation overwrites a tensor that is read later through another view of it."""
        order = {node: number for number, node in enumerate(self._graph.nodes)}
        views: dict[Any, list[Any]] = {}
        for node in self._graph.nodes:
            views[node] = [node]
            if node.op != "call_function" or not (_overwrites(node) or _operation(node) in _MOVES):
                continue
            original = node.args[0]
            if not isinstance(original, torch.fx.Node):
                continue
            views[node] = views[original]
            others = [view for view in views[original] if view is not original]
            if _overwrites(node) and any(order[user] > order[node] for view in others for user in view.users):
                raise self._locate(node).error("changes a view of a tensor in place: expected it not in place")
            views[node].append(node)

    def _trained(self) -> dict[str, int]:
        """Return the sizes of the weights by name; BadInput for one that is not trained."""
        for name, parameter in self.parameters.items():
            if not parameter.requires_grad and name not in self.frozen_zeros:
                raise BadInput(f"{name}: requires_grad is False: expected True, because polybench trains all weights")
        return {name: one.numel() for name, one in self.parameters.items() if name not in self.frozen_zeros}

    def _placeholder(self, name: str, start: Node) -> Any:
        signature = self._signature
        for table in (signature.inputs_to_parameters, signature.inputs_to_buffers):
            if name in table:
                target = table[name]
                tensor = self.parameters.get(self._names.get(target, target))
                tensor = self._constants[target] if tensor is None else tensor
                return Value(self._names.get(target, target), torch.arange(tensor.numel()).reshape(tensor.shape))
        for table in (signature.inputs_to_lifted_tensor_constants, signature.inputs_to_lifted_custom_objs):
            if name in table:
                return self._constants[table[name]]
        return Value(start, positions((BATCH, *self.shape)))

    def _locate(self, node: Any) -> Source:
        """Return the operation's name, the last line of the user's file that led to it, and its module's path."""
        traces = (one.meta.get("stack_trace") for one in (node, *node.users))  # a block has that of its results
        frames = re.findall(r'File "([^"]+)", line (\d+)', next(filter(None, traces), ""))
        own = [frame for frame in frames if self._file is not None and Path(frame[0]) == self._file]
        others = [frame for frame in frames if "/torch/" not in frame[0]]
        path, line = (own or others or frames or [("", "")])[-1]
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        name = re.sub(r"@\d+$", "", modules[-1][0]) if modules else ""
        return Source(_operation(node), f"{Path(path).name}:{line}" if path else self._model, name)

    def _run(self, node: Any, values: dict[Any, Any]) -> None:
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        name = _operation(node)
        if name not in _READS_BUFFERS:
            args, kwargs = torch.utils._pytree.tree_map_only(Value, self._constant, (args, kwargs), is_leaf=is_value)
        leaves = torch.utils._pytree.tree_leaves((args, kwargs), is_leaf=is_value)
        used = [one for one in leaves if is_value(one)]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise self.error(f"no layer computes this block: {_HINTS.get(name, _HINT)}")
        if not used:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise self.error("draws random numbers: expected dropout only")
            values[node] = node.target(*args, **kwargs)
        elif name in _MOVES:
            if node.target is not operator.getitem and (len(used) > 1 or used[0] is not args[0] or _has_dtype(leaves)):
                raise self.error("an argument is a dtype or computed: expected numbers")
            values[node] = self._with_patches(_move(node.target, used[0], args, kwargs))
        elif (operation := self._operations.get(name)) is not None:
            values[node] = operation.translate(self, **self._arguments(operation, node.target._schema, args, kwargs))
        else:
            raise self.error(f"no layer computes this operation: {_HINTS.get(name, _HINT)}")
        if _overwrites(node):
            values[node.args[0]] = values[node]

    def _arguments(self, operation: Operation, schema: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the arguments that a translation reads; BadInput for others that differ from what is expected."""
        names = [_X.get(one.name, one.name) for one in schema.arguments]
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        read = inspect.signature(operation.translate).parameters
        required = {one.name for one in read.values() if one.default is one.empty} - {"reader"}
        if not required <= set(names):
            raise self.error(f"no layer computes this form, {schema.overload_name}: {_HINT}")
        for name, argument in zip(names, schema.arguments, strict=True):
            value = given.get(name, argument.default_value)
            expected = operation.expected.get(name, argument.default_value)
            if name not in read and expected is not ANY and _each(value) != _each(expected):
                default = "" if name in operation.expected else "the default, "
                raise self.error(f"{name}={value}: expected {default}{expected}")
        return {name: value for name, value in given.items() if name in read}

    def _with_patches(self, value: Any) -> Any:
        """Return a sequence of patches as the output of a layer, since later layers may move it again."""
        if isinstance(value, Value) and isinstance(value.base, Node) and isinstance(value.base.layer, spec.Conv):
            everything = positions((BATCH, *value.base.shape))
            for kind, expected, make in self._movers(value.base, everything):
                if kind == "patches" and torch.equal(value.index, expected):
                    return whole(self.once(value.base, kind, make))
        return value

    def _constant(self, value: Value) -> Any:
        """Return the numbers of a buffer, which is a constant; other values unchanged."""
        if isinstance(value.base, str) and value.base not in self.parameters:
            self.constants_read.setdefault(value.base, self.source)
            return self._constants[value.base].flatten()[value.index]
        return value

    def error(self, problem: str) -> BadInput:
        """Return an error at the current operation."""
        return self.source.error(problem)

    def layer(self, make: Callable[[str], spec.Layer], x: Node, **slots: Slot | None) -> Node:
        """Add a layer, made from its name, after `x`."""
        kind = str(make("x").__struct_config__.tag)
        record = make(self.names.unique(self.source.name, kind)) if isinstance(make("x"), spec.Named) else make("x")
        given = {name: slot for name, slot in slots.items() if slot is not None}
        node = Node(record, (x,), x.shape, self.source, given)
        try:
            node.shape = record.output_shape(x.shape)
        except ValueError as error:
            raise self.error(str(error)) from None
        for slot in given.values():
            self.owners.setdefault(slot.variable, node)
        return node

    def slot(self, value: Any) -> Slot | None:
        """Return the slot of a parameter; BadInput if it is computed from the input."""
        if value is None:
            return None
        if not isinstance(value, Value) or not isinstance(value.base, str):
            raise self.error("this argument is computed: expected a parameter of the model")
        return Slot(value.base, value.index.numpy())

    def settle(self, value: Any) -> Node:
        """Return the node of a value, with a layer for what moved its elements; BadInput if no layer does that."""
        if not is_value(value) or isinstance(value.base, str):
            raise self.error("expected a value that depends on the input")
        base: Node = value.base
        index = value.index
        if isinstance(base, Heads):
            raise self.error("expected an output projection, a linear layer, right after attention")
        everything = positions((BATCH, *base.shape))
        if torch.equal(index.squeeze(), everything.squeeze()) and (len(base.shape) == 1 or index.ndim != 2):
            return base
        for kind, expected, make in self._movers(base, everything):
            if torch.equal(index, expected):
                return self.once(base, kind, make)
        raise self.error("the program reorders or selects values in a way that no layer does")

    def _movers(self, base: Node, everything: Any) -> Iterator[tuple[str, Any, Callable[[], Node]]]:
        """Yield the layers that move values of a node: their kind, the positions after them, and the node they make."""
        yield "flatten", everything.flatten(1), lambda: self.layer(lambda _: spec.Flatten(), base)
        match base.layer:
            case spec.Conv() as conv if conv.kernel == conv.stride and not any(conv.pads) and conv.groups == 1:
                record = spec.Patches(conv.name, conv.inputs, conv.outputs, conv.kernel, conv.bias)
                patches = everything.flatten(2).transpose(1, 2)
                shape = tuple(patches.shape[1:])
                yield "patches", patches, lambda: Node(record, base.inputs, shape, base.source, base.slots)
            case spec.LSTM(sequence=True, bidirectional=False):
                yield "last", everything[:, -1], lambda: self.last_output(base)
        if len(base.shape) == 2:
            yield "first", everything[:, 0], lambda: self.layer(lambda _: spec.FirstPosition(), base)

    def once(self, base: Node, kind: str, make: Callable[[], Node]) -> Node:
        """Return the same node each time that a value is settled the same way."""
        if (base, kind) not in self._settled:
            self._settled[base, kind] = make()
        return self._settled[base, kind]

    def last_output(self, lstm: Node) -> Node:
        """Return the same LSTM with its last output only."""

        def make() -> Node:
            layer = lstm.layer
            assert isinstance(layer, spec.LSTM)
            record = spec.LSTM(layer.name, layer.inputs, layer.units, layer.bidirectional, biases=layer.biases)
            return Node(record, lstm.inputs, record.output_shape(lstm.inputs[0].shape), lstm.source, lstm.slots)

        return self.once(lstm, "last", make)

    def rows(self, value: Value) -> tuple[Node, Any, Any]:
        """Split a value into vectors of features along its last axis, for a layer that works at each position.

        Returns the node, the position of each vector (batch and time, in the order of the node), and the feature of
        each element of a vector. The features are the same for all vectors.
        """
        base, index = value
        if not isinstance(base, Node):
            raise self.error("expected a value that depends on the input")
        features = base.shape[-1] if len(base.shape) < 3 else 0
        if features and index.shape[-1] == features:
            vectors = index.reshape(-1, features)
            position, order = vectors[:, 0] // features, vectors[0] % features
            fits = torch.equal(vectors, position[:, None] * features + order)
            if fits and len(position.unique()) == len(position) == BATCH * math.prod(base.shape[:-1]):
                return base, position.reshape(index.shape[:-1]), order
        base = self.settle(value)
        if len(base.shape) > 2:
            raise self.error(f"the input has shape {base.shape}: expected features, or a sequence of features")
        return base, positions((BATCH, *base.shape[:-1])), torch.arange(base.shape[-1])


def positions(shape: Sequence[int]) -> Any:
    """Return the position of each element of a tensor of this shape in C order."""
    return torch.arange(math.prod(shape)).reshape(tuple(shape))


def whole(node: Node) -> Value:
    """Return the output of a node as it is."""
    return Value(node, positions((BATCH, *node.shape)))


def is_value(value: Any) -> bool:
    """Return True for a tensor of the program that depends on the input or on a parameter."""
    return isinstance(value, Value)


def _operation(node: Any) -> str:
    """Return the name of an operation without overload, and without the mark of one that overwrites its input.

    That of a user's own operation has its library, because it may have the name of one of PyTorch's.
    """
    schema = getattr(node.target, "_schema", None)
    return str(schema.name).removeprefix("aten::").removesuffix("_") if schema else str(node.target.__name__)


def _overwrites(node: Any) -> bool:
    """Return True for an operation such as `relu_`, whose output replaces its input."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and str(schema.name).endswith("_")


def _output(node: Any) -> Any:
    """Return the node of the program's output, the logits; parts that are None do not count."""
    return next((one for one in torch.utils._pytree.tree_leaves(node.args[0]) if one is not None), None)


def _each(value: Any) -> set[Any]:
    """Return the values of an argument; a number for all axes equals a list of it."""
    return set(value) if isinstance(value, list) else {value}


def _has_dtype(values: Iterable[Any]) -> bool:
    return any(isinstance(one, torch.dtype) for one in values)


def _move(target: Any, value: Value, args: Any, kwargs: Any) -> Any:
    """Run an operation that moves values on their positions."""
    if target is operator.getitem:
        return args[0][args[1]]
    moved = target(*torch.utils._pytree.tree_map_only(Value, lambda one: one.index, args, is_leaf=is_value), **kwargs)
    return Value(value.base, moved) if isinstance(moved, torch.Tensor) else [Value(value.base, one) for one in moved]
