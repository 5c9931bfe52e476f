"""PyTorch's own optimizers: all of them compute the canonical formulas, with the constants spelled out.

`torch.optim`'s weight decay is added to the gradient (but for `AdamW`), no state contains the rate, and
epsilon is added to the root, in Adam to that of the bias-corrected v (torch 2.13, `_single_tensor_adam`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polybench.core.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


def make(optimizer: Optimizer, parameters: Iterable[Any]) -> Any:
    """The `torch.optim` optimizer of these parameters."""
    from torch import optim

    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    match optimizer.name:
        case "adam":
            return optim.Adam(parameters, rate, betas=ADAM_BETAS, eps=ADAM_EPSILON, weight_decay=decay)
        case "rmsprop":
            return optim.RMSprop(
                parameters, rate, alpha=RMSPROP_DECAY, eps=RMSPROP_EPSILON, weight_decay=decay
            )
        case "sgd" | "momentum" | "nesterov":
            momentum = optimizer.momentum or 0.0
            # PyTorch refuses to look ahead by nothing.
            nesterov = optimizer.name == "nesterov" and momentum > 0
            return optim.SGD(parameters, rate, momentum=momentum, weight_decay=decay, nesterov=nesterov)


def set_rate(torch_optimizer: Any, rate: float) -> None:
    """The rate from the next step on."""
    for group in torch_optimizer.param_groups:
        group["lr"] = rate
