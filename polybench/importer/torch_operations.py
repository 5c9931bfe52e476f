"""PyTorch: the layer of each ATen operation. ADD AN OPERATION: a function, and its row in OPERATIONS.

The functions have the arguments of their operations, which are the same for modules and functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from polybench.importer.graph import Node, Slot, expect_square, tied_owner
from polybench.importer.torch_graph import BATCH, Heads, Reader, Value, is_value, positions, whole
from polybench.networks import layers as spec
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE


def _keep(reader: Reader, x: Value, *_: Any) -> Value:
    """An operation that changes nothing in training."""
    return x


def _elementwise(record: spec.Layer) -> Callable[..., Value]:
    def add(reader: Reader, x: Value, *_: Any) -> Value:
        base = x.base
        if not isinstance(base, Node) or isinstance(base, Heads):
            base, x = (settled := reader.settle(x)), whole(settled)
        return Value(reader.layer(lambda _: record, base), x.index)

    return add


def _conv(
    reader: Reader, x: Value, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value:  # fmt: skip
    node, slot = reader.settle(x), reader.slot(weight)
    assert slot is not None
    outputs, inputs, *kernel = slot.indices.shape
    if expect_square(reader.source, "dilation", dilation) != 1:
        raise reader.error(f"dilation {tuple(dilation)}: expected 1")
    pad: Any = padding if isinstance(padding, str) else expect_square(reader.source, "padding", padding)
    size = expect_square(reader.source, "kernel", kernel)
    step = expect_square(reader.source, "stride", stride)
    slots = {"weight": slot, "bias": reader.slot(bias)}
    make = lambda name: spec.Conv(name, inputs * groups, outputs, size, step, pad, bias is not None, groups)  # noqa: E731
    return whole(reader.layer(make, node, **slots))


def _linear(reader: Reader, x: Value, weight: Any, bias: Any = None) -> Value:
    node, position, order = reader.rows(x)
    slot, bias_slot = reader.slot(weight), reader.slot(bias)
    assert slot is not None
    outputs, inputs = slot.indices.shape
    slot = Slot(slot.variable, slot.indices[:, np.argsort(order.numpy())])
    if isinstance(node, Heads):
        if outputs != inputs:
            raise reader.error(f"the output projection has {outputs} outputs: expected {inputs}")
        made = _project(reader, node, slot, bias_slot)
    else:
        owner = tied_owner(reader.owners, slot)
        if owner is not None and bias is not None:
            raise reader.error(f"it shares the weight of {owner} and has a bias: expected bias=False")
        make = lambda name: spec.Dense(name, inputs, outputs, bias is not None, owner)  # noqa: E731
        made = reader.layer(make, node, weight=None if owner else slot, bias=bias_slot)
    return Value(made, position[..., None] * outputs + torch.arange(outputs))


def _matmul(reader: Reader, x: Any, weight: Any) -> Value:
    if not is_value(x) or not is_value(weight) or not isinstance(weight.base, str) or weight.index.ndim != 2:
        raise reader.error("expected a product with a weight; write attention as F.scaled_dot_product_attention")
    return _linear(reader, x, Value(weight.base, weight.index.T))


_NOT_PROJECTED = "expected an output projection, a linear layer, right after the heads of attention"


def _attention(
    reader: Reader, query: Value, key: Value, value: Value, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    heads, time, size = query.index.shape[1:]
    is_causal = is_causal or _is_causal_mask(reader, attn_mask, time)
    if dropout_p:
        raise reader.error(f"dropout of {dropout_p} inside attention: expected 0")
    if enable_gqa or key.index.shape != query.index.shape or value.index.shape != query.index.shape:
        raise reader.error("expected self-attention with as many heads of keys and values as of queries")
    if scale is not None and not math.isclose(scale, size**-0.5):
        raise reader.error(f"scale {scale}: expected 1 / sqrt({size})")
    bases = [one.base for one in (query, key, value)]
    slots: dict[str, Slot] = {}
    for name, part in zip(PROJECTIONS, (query, key, value), strict=False):
        projection = part.base
        if (
            not isinstance(projection, Node)
            or not isinstance(projection.layer, spec.Dense)
            or part.index.shape[0] != BATCH
        ):
            raise reader.error(f"the {name} is not the output of a linear layer")
        outputs = projection.shape[-1]
        rows = part.index[0, :, 0] % outputs
        expected = positions((BATCH, 1, time, 1)) * outputs + rows[:, None]
        if not torch.equal(part.index, expected):
            raise reader.error(f"the heads of the {name} mix positions: expected (batch, heads, time, features)")
        for tensor, slot in projection.slots.items():
            slots[f"{name}_{tensor}"] = Slot(slot.variable, slot.indices[rows.flatten().numpy()])
    inputs = {base.inputs for base in bases if isinstance(base, Node)}
    if len(inputs) != 1:
        raise reader.error("query, key and value have different inputs: expected self-attention")
    features = heads * size
    make = lambda name, bias: spec.Attention(name, features, heads, is_causal, bias)  # noqa: E731
    node = Heads(None, next(iter(inputs)), (time, features), reader.source, slots, _NOT_PROJECTED, attention=make)
    moved = positions((BATCH, time, heads, size)).transpose(1, 2)
    return Value(node, moved)


def _is_causal_mask(reader: Reader, mask: Any, time: int) -> bool:
    """Return True for the mask of causal attention, False for none; BadInput for others."""
    if mask is None:
        return False
    if isinstance(mask, torch.Tensor):
        allowed = mask if mask.dtype == torch.bool else mask == 0
        if torch.equal(allowed.expand(1, 1, time, time)[0, 0], torch.ones(time, time).tril().bool()):
            return True
    raise reader.error("expected no mask, or the lower triangle, as is_causal=True")


def _project(reader: Reader, heads: Heads, weight: Slot, bias: Slot | None) -> Node:
    """Add attention, from its heads and its output projection."""
    slots: dict[str, Slot | None] = {**heads.slots, "output_weight": weight, "output_bias": bias}
    biases = {name for name, slot in slots.items() if name.endswith("_bias") and slot is not None}
    if len(biases) not in (0, len(PROJECTIONS)):
        raise reader.error(
            f"only {', '.join(sorted(biases))} exist: expected a bias in all four projections, or in none"
        )
    projection, reader.source = reader.source, heads.source
    node = reader.layer(lambda name: heads.attention(name, bool(biases)), heads.inputs[0], **slots)
    reader.source = projection
    return node


def _embedding(reader: Reader, weight: Any, tokens: Any, *_: Any) -> Value:
    slot = reader.slot(weight)
    assert slot is not None
    vocabulary, features = slot.indices.shape
    if isinstance(tokens, torch.Tensor):  # constant, as for positions
        return Value(weight.base, weight.index[tokens])
    node = reader.settle(tokens)
    if node.inputs or len(node.shape) != 1:
        raise reader.error("expected the input's tokens: import it with --input LENGTH")
    return whole(reader.layer(lambda name: spec.Embedding(name, vocabulary, features), node, weight=slot))


def _batch_norm(
    reader: Reader, x: Value, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float,
    epsilon: float, *_: Any,
) -> Value:  # fmt: skip
    if weight is None or bias is None or mean is None or not training:
        raise reader.error("expected batch norm with affine=True, track_running_stats=True, in training")
    node = reader.settle(x)
    slots = {"weight": weight, "bias": bias, "running_mean": mean, "running_variance": variance}
    make = lambda name: spec.BatchNorm(name, node.shape[0], epsilon, momentum)  # noqa: E731
    return whole(reader.layer(make, node, **{name: reader.slot(one) for name, one in slots.items()}))


def _layer_norm(
    reader: Reader, x: Value, shape: Sequence[int], weight: Any = None, bias: Any = None, epsilon: float = 1e-5, *_: Any
) -> Value:
    node, position, order = reader.rows(x)
    if (
        weight is None
        or isinstance(node, Heads)
        or tuple(shape) != node.shape[-1:]
        or not torch.equal(order, order.sort()[0])
    ):
        raise reader.error("expected a weight, over the features of each position")
    features = node.shape[-1]
    make = lambda name: spec.LayerNorm(name, features, epsilon, bias is not None)  # noqa: E731
    made = reader.layer(make, node, weight=reader.slot(weight), bias=reader.slot(bias))
    return Value(made, position[..., None] * features + torch.arange(features))


def _group_norm(
    reader: Reader, x: Value, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, *_: Any
) -> Value:
    node = reader.settle(x)
    if weight is None or bias is None:
        raise reader.error("expected affine=True")
    make = lambda name: spec.GroupNorm(name, node.shape[0], groups, epsilon)  # noqa: E731
    return whole(reader.layer(make, node, weight=reader.slot(weight), bias=reader.slot(bias)))


def _dropout(reader: Reader, x: Value, rate: float, training: bool = True) -> Value:
    if not rate or not training:
        return x
    if rate == 1:
        raise reader.error("rate 1 drops everything: expected less")
    return whole(reader.layer(lambda name: spec.Dropout(name, rate), reader.settle(x)))


def _gelu(reader: Reader, x: Value, *, approximate: str = "none") -> Value:
    made: Value = _elementwise(spec.GELU("tanh" if approximate == "tanh" else "none"))(reader, x)
    return made


def _hardtanh(reader: Reader, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    if (low, high) != (0, 6):
        raise reader.error(f"limits {low} and {high}: expected 0 and 6, as in ReLU6")
    return _relu6(reader, x)


_relu6 = _elementwise(spec.ReLU6())


def _max_pool(
    reader: Reader, x: Value, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Value:
    return _pool(reader, spec.MaxPool, x, size, stride, padding, dilation, ceil_mode)


def _average_pool(
    reader: Reader, x: Value, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *_: Any
) -> Value:
    return _pool(reader, spec.AveragePool, x, size, stride, padding, 1, ceil_mode)


def _pool(
    reader: Reader, kind: Any, x: Value, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Value:
    node, source = reader.settle(x), reader.source
    window, pad = expect_square(source, "kernel", size), expect_square(source, "padding", padding)
    if pad or expect_square(source, "dilation", dilation) != 1:
        raise reader.error(f"padding {pad}, dilation {dilation}: expected pooling without padding and dilation")
    step = expect_square(source, "stride", stride) if stride else window
    if ceil_mode and any((length - window) % step for length in node.shape[1:]):
        raise reader.error("ceil_mode keeps windows beyond the border: expected ceil_mode=False")
    return whole(reader.layer(lambda _: kind(window, step), node))


def _adaptive_average_pool(reader: Reader, x: Value, size: Any) -> Value:
    node = reader.settle(x)
    if list(size) == [1, 1]:
        return _global_pool(reader, node, keep_axes=True)
    height, width = node.shape[1:]
    window, rest = divmod(height, size[0])
    if rest or height != width or size[0] != size[1]:
        raise reader.error(f"output {tuple(size)} of {height} x {width}: expected 1 x 1, or a divisor of a square")
    return x if window == 1 else whole(reader.layer(lambda _: spec.AveragePool(window), node))


def _mean(reader: Reader, x: Value, axes: Any = None, keepdim: bool = False, *_: Any) -> Value:
    node = reader.settle(x)
    if x.index.ndim != len(node.shape) + 1 or axes is None:
        raise reader.error("expected the mean over height and width, or over time")
    reduced = {axis % x.index.ndim for axis in axes}
    if len(node.shape) == 3 and reduced == {2, 3}:
        return _global_pool(reader, node, keep_axes=keepdim)
    if len(node.shape) == 2 and reduced == {1} and not keepdim:
        return whole(reader.layer(lambda _: spec.MeanOverTime(), node))
    raise reader.error(f"mean over axes {sorted(reduced)}: expected height and width, or time")


def _global_pool(reader: Reader, node: Node, *, keep_axes: bool) -> Value:
    made = reader.layer(lambda _: spec.GlobalAveragePool(), node)
    index = whole(made).index
    return Value(made, index[:, :, None, None] if keep_axes else index)


def _add(reader: Reader, a: Any, b: Any, *, alpha: float = 1) -> Value:
    if alpha != 1 or not is_value(a) or not is_value(b):
        raise reader.error("expected the sum of two values that depend on the input, or of one and a parameter")
    if isinstance(a.base, str):
        a, b = b, a
    if isinstance(b.base, str):
        return _positions(reader, a, b)
    shape = np.broadcast_shapes(a.index.shape, b.index.shape)
    if a.index.shape != b.index.shape or a.base.shape != b.base.shape or not torch.equal(a.index, b.index):
        nodes = reader.settle(a), reader.settle(b)
        if nodes[0].shape != nodes[1].shape:
            raise reader.error(f"adds shapes {nodes[0].shape} and {nodes[1].shape}: expected equal shapes")
        a, b = map(whole, nodes)
        if a.index.shape != shape:
            a = Value(a.base, a.index.reshape(shape))
    if isinstance(a.base, Heads) or isinstance(b.base, Heads):
        raise reader.error(_NOT_PROJECTED)
    return Value(Node(None, (a.base, b.base), a.base.shape, reader.source), a.index)


def _positions(reader: Reader, x: Value, table: Value) -> Value:
    """Add a trained row to each position."""
    node = reader.settle(x)
    size = reader.parameters[str(table.base)].numel()
    if len(node.shape) == 2:
        time, features = node.shape
        rows = torch.arange(time * features).reshape(1, time, features)
        if size % features == 0 and torch.equal(table.index.expand(1, time, features), rows):
            length = size // features
            slot = Slot(str(table.base), np.arange(size).reshape(length, features))
            return whole(reader.layer(lambda name: spec.Positions(name, length, features), node, weight=slot))
    raise reader.error(f"adds {table.base} to a value of shape {node.shape}: expected a row for each position")


def _cat(reader: Reader, values: Sequence[Any], axis: int = 0) -> Value:
    if all(is_value(one) for one in values):
        if len({one.base for one in values}) == 1:
            return Value(values[0].base, torch.cat([one.index for one in values], axis))
        first, *rest = values
        if isinstance(first.base, str) and len(rest) == 1 and not isinstance(rest[0].base, str):
            node = reader.settle(rest[0])
            features = node.shape[-1]
            if axis in (1, -2) and torch.equal(first.index, torch.arange(features).expand(BATCH, 1, features)):
                slot = Slot(first.base, np.arange(features))
                return whole(reader.layer(lambda name: spec.ClassToken(name, features), node, token=slot))
    raise reader.error("expected a class token before a sequence, or parts of one value: no layer concatenates others")


def _lstm(
    reader: Reader, x: Value, state: Sequence[Any], weights: Sequence[Any], has_biases: bool, layers: int, rate: float,
    training: bool, bidirectional: bool, batch_first: bool,
) -> list[Value | None]:  # fmt: skip
    node = reader.settle(x)
    directions = ("", REVERSE) if bidirectional else ("",)
    each = 4 if has_biases else 2
    if layers != 1 or not batch_first or not has_biases or len(weights) != each * len(directions):
        raise reader.error("expected one layer, batch_first=True, biases, and no projection")
    if any(not isinstance(one, torch.Tensor) or one.any() for one in state):
        raise reader.error("expected an initial state of zeros")
    names = ("weight", "recurrent", "bias", "recurrent_bias")
    slots: dict[str, Slot | None] = {
        direction + name: reader.slot(weights[each * number + offset])
        for number, direction in enumerate(directions)
        for offset, name in enumerate(names)
    }
    second = [slots[f"{direction}recurrent_bias"] for direction in directions]
    frozen = all(slot is not None and not reader.parameters[slot.variable].requires_grad for slot in second)
    if frozen:
        slots = {name: slot for name, slot in slots.items() if not name.endswith("recurrent_bias")}
    weight = slots["weight"]
    assert weight is not None
    rows, inputs = weight.indices.shape
    biases: Any = 1 if frozen else 2
    if not frozen:
        reader.notes[
            "nn.LSTM has two biases, Keras and Flux have one: they lack this network unless bias_hh is 0"
            " and not trained (requires_grad=False)"
        ] = None
    make = lambda name: spec.LSTM(name, inputs, rows // 4, bidirectional, True, biases=biases)  # noqa: E731
    outputs = reader.layer(make, node, **slots)
    last = reader.last_output(outputs)
    units = positions((BATCH, len(directions), rows // 4)).transpose(0, 1)
    return [whole(outputs), Value(last, units), None]


def _softmax(reader: Reader, x: Value, axis: int, *_: Any) -> Value:
    node = reader.settle(x)
    if axis % x.index.ndim != len(node.shape):
        raise reader.error("expected a softmax over the classes, at the end")
    reader.probabilities = Node(node.layer, node.inputs, node.shape, node.source, node.slots)
    reader.softmax = reader.source
    reader.notes["the model ends in a softmax; the network ends in its logits, and the softmax is in the loss"] = None
    return whole(reader.probabilities)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "conv2d": _conv,
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
    "lstm": _lstm,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "dropout": _dropout,
    "relu": _elementwise(spec.ReLU()),
    "relu6": _relu6,
    "hardtanh": _hardtanh,
    "gelu": _gelu,
    "silu": _elementwise(spec.SiLU()),
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _adaptive_average_pool,
    "mean": _mean,
    "add": _add,
    "cat": _cat,
    "softmax": _softmax,
    "_assert_tensor_metadata": _keep,
}
"""The layer of each ATen operation; `torch.export` has them for modules and functions alike."""
