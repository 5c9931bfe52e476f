"""Optimizers of `torch.optim`, which compute the canonical formulas; all constants are explicit.

Weight decay is added to the gradient (except in `AdamW`), and no state contains the learning rate. Epsilon is
added to the root, in Adam to that of the bias-corrected v (torch 2.13, `_single_tensor_adam`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polybench.networks.optimizers import ADAM_BETAS, ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


def make_optimizer(optimizer: Optimizer, parameters: Iterable[Any], *, foreach: bool) -> Any:
    """Make the `torch.optim` optimizer of these parameters.

    With `foreach`, each operation updates all parameters. Otherwise PyTorch chooses: one parameter at a time
    on the CPU, `foreach` on CUDA.
    """
    from torch import optim

    rate = optimizer.learning_rate
    shared: dict[str, Any] = {"weight_decay": optimizer.weight_decay, "foreach": foreach or None}
    match optimizer.name:
        case "adam":
            return optim.Adam(parameters, rate, betas=ADAM_BETAS, eps=ADAM_EPSILON, **shared)
        case "rmsprop":
            return optim.RMSprop(parameters, rate, alpha=RMSPROP_DECAY, eps=RMSPROP_EPSILON, **shared)
        case "sgd" | "momentum" | "nesterov":
            momentum = optimizer.momentum or 0.0
            # PyTorch rejects nesterov without momentum.
            nesterov = optimizer.name == "nesterov" and momentum > 0
            return optim.SGD(parameters, rate, momentum=momentum, nesterov=nesterov, **shared)


def set_learning_rate(torch_optimizer: Any, rate: float) -> None:
    """Set the learning rate from the next step on."""
    for group in torch_optimizer.param_groups:
        group["lr"] = rate
