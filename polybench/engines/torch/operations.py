"""Operations of a layer and of a step in PyTorch, built separately for timing. This module imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - PyTorch's conventional name

from polybench.engines.base import Weights
from polybench.engines.shared.program import import_program
from polybench.engines.shared.timed_operations import OperationCall
from polybench.engines.torch.emitter import emit_layer
from polybench.networks.layers import Layer, Operation, Shape, state_shapes, weight_shapes
from polybench.networks.timed_layers import TimedLayer


def layer_operations(
    timed_layer: TimedLayer,
    weights: Weights,
    x: Any,
    dy: Any,
    memory_format: Any,
    *,
    folder: Path | None,
    is_forward_pass: bool,
    autocast: bool,
) -> dict[Operation, OperationCall]:
    """Build each operation of a layer for input `x` and gradient `dy` of its output, on their device.

    A gradient is `torch.autograd.grad` with respect to the input or to the weights only, after a forward pass
    that is not timed. With `autocast`, layers get bf16 from the layer before them, and the first one float32.
    """
    in_step = torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=autocast)
    module, alone = (
        _module(layers, timed_layer.input_shape, weights, folder).to(dy.device, dy.dtype, memory_format=memory_format)
        for layers in (timed_layer.layers, timed_layer.layers[:1])
    )  # x may be tokens
    if autocast and timed_layer.needs_input_gradient:
        x = x.bfloat16()
    overhead = _empty_autocast(x.device.type) if autocast else None
    if is_forward_pass:
        module.eval()
        return {"forward": OperationCall(torch.inference_mode()(in_step(lambda: module(x))), overhead)}
    x.requires_grad_(timed_layer.needs_input_gradient)
    calls: dict[Operation, OperationCall] = {"forward": OperationCall(in_step(lambda: module(x)), overhead)}
    z = in_step(alone)(x)
    dz = dy = dy.to(z.dtype)
    if timed_layer.has_relu:
        # A separate ReLU, not in place: its gradient is the same kernel.
        relu_input = z.detach().requires_grad_()
        calls["relu gradient"] = _gradient(F.relu(relu_input), [relu_input], dy)
        (dz,) = calls["relu gradient"].run()
    trained = [parameter for parameter in alone.parameters() if parameter.requires_grad]
    for operation, wrt_input, wrt_weights in timed_layer.gradients():
        calls[operation] = _gradient(z, [x] * wrt_input + trained * wrt_weights, dz)
    return calls


def _module(layers: Sequence[Layer], shape: Shape, weights: Weights, folder: Path | None) -> Any:
    """Make the network of these layers alone, with these weights; the folder gets its program."""
    program = import_program(emit_layer(layers, shape), folder)
    module = program.Network()
    tensors = getattr(program, "canonical", dict)(module.state_dict())
    for name in weight_shapes(layers) | state_shapes(layers):
        tensors[name].copy_(torch.from_numpy(weights[name]))
    return module


def step_operations(
    logits: Any, labels: Any, optimizer: Any, apply_update: Callable[[], None], label_smoothing: float
) -> dict[Operation, OperationCall]:
    """Build the operations of a step outside of layers; the update uses a small constant gradient."""
    if logits.ndim == 3:  # a prediction at each position
        logits, labels = logits.flatten(0, 1), labels.flatten()
    logits = logits.detach().requires_grad_()
    all_parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    parameters = [parameter for parameter in all_parameters if parameter.requires_grad]
    gradients = [torch.full_like(parameter, 1e-3) for parameter in parameters]

    def loss() -> Any:
        return torch.autograd.grad(F.cross_entropy(logits, labels, label_smoothing=label_smoothing), logits)

    def update() -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        apply_update()

    return {"loss": OperationCall(loss), "update": OperationCall(update), "call": OperationCall(lambda: None)}


def _gradient(y: Any, inputs: list[Any], dy: Any) -> OperationCall:
    return OperationCall(_grad(y, inputs, dy), _empty_grad())


def _grad(y: Any, inputs: list[Any], dy: Any) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


@cache
def _empty_autocast(device_type: str) -> Callable[[], Any]:
    """Build an empty call under autocast, which a whole step enters only once."""
    empty: Callable[[], Any] = torch.autocast(device_type, dtype=torch.bfloat16)(lambda: None)
    return empty


@cache
def _empty_grad() -> Callable[[], Any]:
    """Build an empty call of `grad`, since a whole step calls `grad` only once."""
    one = torch.ones(1, requires_grad=True)
    return _grad(one.view(1), [one], torch.ones(1))
