"""One layer in PyTorch: its forward pass and each of its gradients, alone. Imported where PyTorch is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - the name that all of PyTorch's users know

from polybench.core.document.layers import Part
from polybench.core.pieces import Piece
from polybench.engines.base import Weights
from polybench.engines.pytorch.layers import network
from polybench.engines.support.replay import Call


def calls(piece: Piece, weights: Weights, x: Any, dy: Any, memory_format: Any) -> dict[Part, Call]:
    """The parts of a layer.

    Gradients are `torch.autograd.grad` with respect to the input alone, or the weights alone, behind a
    forward pass that was done before.

    Args:
        piece: the layer.
        weights: all of its tensors, canonical.
        x: its input, on its device and in its memory format.
        dy: the gradient of its output.
        memory_format: of weights.
    """
    made = network(piece.layers, piece.input_shape, given_masks=False)
    made.module.to(dy.device, dy.dtype, memory_format=memory_format)  # x may be tokens
    with torch.no_grad():
        for name, tensor in made.tensors(piece.tensor_shapes()).items():
            tensor.copy_(torch.from_numpy(weights[name]))
    x.requires_grad_(piece.wants_data_gradient)
    found: dict[Part, Call] = {"forward": Call(lambda: made.module(x))}
    z, dz = made.module[0](x), dy
    if piece.activated:
        # A ReLU of its own, not in place: its gradient is the same kernel.
        before = z.detach().requires_grad_()
        found["activation"] = _gradient(F.relu(before), [before], dy)
        (dz,) = found["activation"].do()
    trained = [parameter for parameter in made.module.parameters() if parameter.requires_grad]
    for part, data, own in piece.gradients():
        found[part] = _gradient(z, [x] * data + trained * own, dz)
    return found


def step_calls(logits: Any, labels: Any, optimizer: Any) -> dict[Part, Call]:
    """The parts of a step that belong to no layer; weights are updated with a small gradient."""
    logits = logits.detach().requires_grad_()
    of_optimizer = (parameter for group in optimizer.param_groups for parameter in group["params"])
    parameters = [parameter for parameter in of_optimizer if parameter.requires_grad]
    gradients = [torch.full_like(parameter, 1e-3) for parameter in parameters]

    def loss() -> Any:
        return torch.autograd.grad(F.cross_entropy(logits, labels), logits)

    def update() -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return {"loss": Call(loss), "update": Call(update), "call": Call(lambda: None)}


def _gradient(y: Any, inputs: list[Any], dy: Any) -> Call:
    return Call(_grad(y, inputs, dy), _empty_grad())


def _grad(y: Any, inputs: list[Any], dy: Any) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


@cache
def _empty_grad() -> Callable[[], Any]:
    """A call of `grad` itself: a whole step makes one only."""
    one = torch.ones(1, requires_grad=True)
    return _grad(one.view(1), [one], torch.ones(1))
