"""PyTorch: the layer of each ATen operation. ADD AN OPERATION: a function, and its row in OPERATIONS.

The functions have the arguments of their operations, which are the same for modules and functions. What a function does
not read has its default or the value in OPERATIONS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from polybench.importer.graph import Node, Slot, expect_square, split_padding, tied_owner
from polybench.importer.graph import pad as add_padding
from polybench.importer.torch_graph import ANY, BATCH, Heads, Operation, Reader, Value, is_value, positions, whole
from polybench.networks import layers as spec
from polybench.networks.padding import NO_PADDING, Sides, same_in_tensorflow
from polybench.networks.sequence_layers import PROJECTIONS, REVERSE


def _elementwise(record: spec.Layer) -> Callable[..., Value]:
    def add(reader: Reader, x: Value) -> Value:
        base = x.base
        if not isinstance(base, Node) or isinstance(base, Heads):
            base, x = (settled := reader.settle(x)), whole(settled)
        return Value(reader.layer(lambda _: record, base), x.index)

    return add


def _conv(
    reader: Reader, x: Value, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, groups: int = 1
) -> Value:
    settled, slot = reader.settle(x), reader.slot(weight)
    assert slot is not None
    outputs, inputs, *kernel = slot.indices.shape
    size = expect_square(reader.source, "kernel", kernel)
    step = expect_square(reader.source, "stride", stride)
    image, before = split_padding(settled, 0)
    own = same_in_tensorflow(settled.shape, size, step) if padding == "same" else _sides(padding)
    pads = own.plus(before).padding
    slots = {"weight": slot, "bias": reader.slot(bias)}
    make = lambda name: spec.Conv(name, inputs * groups, outputs, size, step, pads, bias is not None, groups)  # noqa: E731
    return whole(reader.layer(make, image, **slots))


def _sides(padding: Any) -> Sides:
    """Return the sides of PyTorch's padding: a number, one number for each axis, or "valid"."""
    if isinstance(padding, str):
        return NO_PADDING
    height, width = [padding] * 2 if isinstance(padding, int) else [*padding, *padding][:2]
    return Sides(height, height, width, width)


def _pad(reader: Reader, x: Value, pad: Sequence[int], value: float | None = None) -> Value:
    if len(pad) > 4:
        raise reader.error(f"pads {len(pad) // 2} axes: expected height and width")
    left, right, top, bottom = [*pad, 0, 0][:4]
    return whole(add_padding(reader.settle(x), Sides(top, bottom, left, right), value or 0.0, reader.source))


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


def _matmul(reader: Reader, x: Any, other: Any) -> Value:
    if not is_value(x) or not is_value(other) or not isinstance(other.base, str) or other.index.ndim != 2:
        raise reader.error("expected a product with a weight; write attention as F.scaled_dot_product_attention")
    return _linear(reader, x, Value(other.base, other.index.T))


def _mm(reader: Reader, x: Any, mat2: Any) -> Value:
    return _matmul(reader, x, mat2)


_HIDDEN = -1000
"""A score that a mask lowers by at least this much has no weight, also in float64."""

_NOT_PROJECTED = "expected an output projection, a linear layer, right after the heads of attention"


def _attention(
    reader: Reader, query: Value, key: Value, value: Value, attn_mask: Any = None, is_causal: bool = False,
    scale: float | None = None,
) -> Value:  # fmt: skip
    heads, time, size = query.index.shape[1:]
    is_causal = is_causal or _is_causal_mask(reader, attn_mask, time)
    if key.index.shape != query.index.shape or value.index.shape != query.index.shape:
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
        scores = torch.where(mask, 0.0, -math.inf) if mask.dtype == torch.bool else mask
        later = torch.ones(time, time).triu(1).bool()
        if (((scores == 0) & ~later) | ((scores <= _HIDDEN) & later)).all():
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


def _embedding(reader: Reader, weight: Any, indices: Any) -> Value:
    slot = reader.slot(weight)
    assert slot is not None
    vocabulary, features = slot.indices.shape
    if isinstance(indices, torch.Tensor):  # constant, as for positions
        return Value(weight.base, weight.index[indices])
    node = reader.settle(indices)
    if node.inputs or len(node.shape) != 1:
        raise reader.error("expected the input's tokens: import it with --input LENGTH")
    return whole(reader.layer(lambda name: spec.Embedding(name, vocabulary, features), node, weight=slot))


def _batch_norm(
    reader: Reader, x: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Value:
    if weight is None or bias is None:
        raise reader.error("affine=False: expected a weight and a bias")
    if running_mean is None or running_var is None:
        raise reader.error("track_running_stats=False: expected running statistics")
    node = reader.settle(x)
    slots = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_variance": running_var}
    make = lambda name: spec.BatchNorm(name, node.shape[0], eps, momentum)  # noqa: E731
    return whole(reader.layer(make, node, **{name: reader.slot(one) for name, one in slots.items()}))


def _layer_norm(
    reader: Reader, x: Value, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Value:
    node, position, order = reader.rows(x)
    if weight is None:
        raise reader.error("elementwise_affine=False: expected a weight")
    is_ordered = torch.equal(order, order.sort()[0])
    if isinstance(node, Heads) or tuple(normalized_shape) != node.shape[-1:] or not is_ordered:
        raise reader.error(f"normalized_shape={normalized_shape}: expected the features of each position")
    features = node.shape[-1]
    make = lambda name: spec.LayerNorm(name, features, eps, bias is not None)  # noqa: E731
    made = reader.layer(make, node, weight=reader.slot(weight), bias=reader.slot(bias))
    return Value(made, position[..., None] * features + torch.arange(features))


def _group_norm(
    reader: Reader, x: Value, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Value:
    node = reader.settle(x)
    if weight is None or bias is None:
        raise reader.error("affine=False: expected a weight and a bias")
    make = lambda name: spec.GroupNorm(name, node.shape[0], num_groups, eps)  # noqa: E731
    return whole(reader.layer(make, node, weight=reader.slot(weight), bias=reader.slot(bias)))


def _dropout(reader: Reader, x: Value, p: float, train: bool) -> Value:
    if not p or not train:
        return x
    if p == 1:
        raise reader.error("p=1 drops everything: expected less")
    return whole(reader.layer(lambda name: spec.Dropout(name, p), reader.settle(x)))


def _gelu(reader: Reader, x: Value, approximate: str = "none") -> Value:
    made: Value = _elementwise(spec.GELU("tanh" if approximate == "tanh" else "none"))(reader, x)
    return made


def _pool(kind: Any) -> Callable[..., Value]:
    def add(
        reader: Reader, x: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Value:  # fmt: skip
        settled, own = reader.settle(x), _sides(padding)
        window = expect_square(reader.source, "kernel", kernel_size)
        step = expect_square(reader.source, "stride", stride) if stride else window
        image, before = split_padding(settled, -math.inf if kind is spec.MaxPool else 0)
        beyond = _beyond(settled.shape, own, window, step) if ceil_mode else NO_PADDING
        pads = own.plus(before).plus(beyond).padding
        if kind is spec.MaxPool:
            return whole(reader.layer(lambda _: spec.MaxPool(window, step, pads), image))
        counted, others = (before.plus(own), beyond) if count_include_pad else (before, own.plus(beyond))
        if any(counted) and any(others):
            raise reader.error("counts some of its padding: expected all of it, or none")
        return whole(reader.layer(lambda _: spec.AveragePool(window, step, pads, not any(others)), image))

    return add


def _beyond(shape: spec.Shape, own: Sides, window: int, step: int) -> Sides:
    """Return what the last windows of `ceil_mode` have beyond image and padding; none starts there."""
    height, width = (
        rest if (rest := -(length + sum(pads) - window) % step) < window - pads[1] else 0
        for length, pads in zip(shape[1:], own.axes, strict=True)
    )
    return Sides(0, height, 0, width)


def _adaptive_average_pool(reader: Reader, x: Value, output_size: Any) -> Value:
    node = reader.settle(x)
    if list(output_size) == [1, 1]:
        return _global_pool(reader, node, keep_axes=True)
    height, width = node.shape[1:]
    window, rest = divmod(height, output_size[0])
    if rest or height != width or output_size[0] != output_size[1]:
        raise reader.error(
            f"output {tuple(output_size)} of {height} x {width}: expected 1 x 1, or a divisor of a square"
        )
    return x if window == 1 else whole(reader.layer(lambda _: spec.AveragePool(window), node))


def _mean(reader: Reader, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    node = reader.settle(x)
    if x.index.ndim != len(node.shape) + 1 or dim is None:
        raise reader.error("expected the mean over height and width, or over time")
    reduced = {axis % x.index.ndim for axis in dim}
    if len(node.shape) == 3 and reduced == {2, 3}:
        return _global_pool(reader, node, keep_axes=keepdim)
    if len(node.shape) == 2 and reduced == {1} and not keepdim:
        return whole(reader.layer(lambda _: spec.MeanOverTime(), node))
    raise reader.error(f"mean over axes {sorted(reduced)}: expected height and width, or time")


def _global_pool(reader: Reader, node: Node, *, keep_axes: bool) -> Value:
    made = reader.layer(lambda _: spec.GlobalAveragePool(), node)
    index = whole(made).index
    return Value(made, index[:, :, None, None] if keep_axes else index)


def _add(reader: Reader, x: Any, other: Any) -> Value:
    a, b = x, other
    if not is_value(a) or not is_value(b):
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


def _cat(reader: Reader, tensors: Sequence[Any], dim: int = 0) -> Value:
    if all(is_value(one) for one in tensors):
        if len({one.base for one in tensors}) == 1:
            return Value(tensors[0].base, torch.cat([one.index for one in tensors], dim))
        first, *rest = tensors
        if isinstance(first.base, str) and len(rest) == 1 and not isinstance(rest[0].base, str):
            node = reader.settle(rest[0])
            features = node.shape[-1]
            if dim in (1, -2) and torch.equal(first.index, torch.arange(features).expand(BATCH, 1, features)):
                slot = Slot(first.base, np.arange(features))
                return whole(reader.layer(lambda name: spec.ClassToken(name, features), node, token=slot))
    raise reader.error("expected a class token before a sequence, or parts of one value: no layer concatenates others")


def _lstm(
    reader: Reader, x: Value, hx: Sequence[Any], params: Sequence[Any], bidirectional: bool
) -> list[Value | None]:
    node = reader.settle(x)
    directions = ("", REVERSE) if bidirectional else ("",)
    names = ("weight", "recurrent", "bias", "recurrent_bias")
    if len(params) != len(names) * len(directions):
        raise reader.error("proj_size: expected 0, an LSTM without a projection")
    if any(not isinstance(one, torch.Tensor) or one.any() for one in hx):
        raise reader.error("expected an initial state of zeros")
    slots: dict[str, Slot | None] = {
        direction + name: reader.slot(params[len(names) * number + offset])
        for number, direction in enumerate(directions)
        for offset, name in enumerate(names)
    }
    second = [slots[f"{direction}recurrent_bias"] for direction in directions]
    zeros = {slot.variable for slot in second if slot is not None and _is_frozen_zero(reader, slot.variable)}
    frozen = len(zeros) == len(second)
    if frozen:
        reader.frozen_zeros |= zeros
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


def _is_frozen_zero(reader: Reader, weight: str) -> bool:
    parameter = reader.parameters[weight]
    return not parameter.requires_grad and not parameter.any()


def _softmax(reader: Reader, x: Value, dim: int) -> Value:
    """A softmax or a log-softmax, both of which are part of the cross-entropy."""
    node, name = reader.settle(x), reader.source.operation
    if dim % x.index.ndim != len(node.shape) or reader.logits is not None:
        raise reader.error(f"expected one {name}, over the classes, at the end")
    reader.logits, reader.softmax = Node(node.layer, node.inputs, node.shape, node.source, node.slots), reader.source
    reader.notes[f"the model ends in a {name}; the network ends in its logits, and the {name} is in the loss"] = None
    return whole(reader.logits)


OPERATIONS: dict[str, Operation] = {
    "conv2d": Operation(_conv),
    "linear": Operation(_linear),
    "matmul": Operation(_matmul),
    "mm": Operation(_mm),
    "scaled_dot_product_attention": Operation(_attention),
    "embedding": Operation(_embedding),
    # Dropout is between the layers of an LSTM, of which there is one.
    "lstm": Operation(_lstm, {"has_biases": True, "num_layers": 1, "dropout": ANY, "train": ANY, "batch_first": True}),
    "batch_norm": Operation(_batch_norm, {"training": True, "cudnn_enabled": ANY}),
    "layer_norm": Operation(_layer_norm, {"cudnn_enable": ANY}),
    "group_norm": Operation(_group_norm, {"cudnn_enabled": ANY}),
    "dropout": Operation(_dropout),
    "relu": Operation(_elementwise(spec.ReLU())),
    "relu6": Operation(_elementwise(spec.ReLU6())),
    "hardtanh": Operation(_elementwise(spec.ReLU6()), {"min_val": 0, "max_val": 6}),
    "gelu": Operation(_gelu),
    "silu": Operation(_elementwise(spec.SiLU())),
    "max_pool2d": Operation(_pool(spec.MaxPool)),
    "avg_pool2d": Operation(_pool(spec.AveragePool)),
    "pad": Operation(_pad),
    "constant_pad_nd": Operation(_pad),
    "adaptive_avg_pool2d": Operation(_adaptive_average_pool),
    "mean": Operation(_mean),
    "add": Operation(_add),
    "cat": Operation(_cat),
    "softmax": Operation(_softmax),
    "log_softmax": Operation(_softmax),
}
"""The layer of each ATen operation; `torch.export` has them for modules and functions alike."""
