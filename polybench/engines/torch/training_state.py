"""Checkpoint of a training's state as NumPy arrays. This module imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from polybench.engines.base import Weights


def training_state(tensors: Mapping[str, Any], optimizer: Any, device: Any) -> Weights:
    """Copy the state to NumPy arrays for `restore`.

    Args:
        tensors: the network's parameters and running statistics, by name.
        optimizer: optimizer of these parameters.
        device: device whose generator dropout uses.
    """
    state = {**_mutable_tensors(tensors, optimizer), "generator": torch.get_rng_state()}
    if device.type == "cuda":
        state["device_generator"] = torch.cuda.get_rng_state(device)
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}


def restore(state: Weights, tensors: Mapping[str, Any], optimizer: Any, device: Any, *, rank: int) -> None:
    """Restore a result of `training_state`; the optimizer must have made a step already.

    The saved generator is that of rank 0; other ranks derive their own generators from it.
    """
    saved = {name: torch.from_numpy(value) for name, value in state.items()}
    with torch.no_grad():
        for name, tensor in _mutable_tensors(tensors, optimizer).items():
            tensor.copy_(saved[name])  # in place, for CUDA graphs
    torch.set_rng_state(saved["generator"])
    if rank:
        torch.manual_seed(int(torch.randint(1 << 62, ())) + rank)
    elif device.type == "cuda":
        torch.cuda.set_rng_state(saved["device_generator"], device)


def _mutable_tensors(tensors: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """Tensors that a step changes, by name."""
    found = dict(tensors)
    for index, state in enumerate(optimizer.state.values()):
        found |= {f"optimizer.{index}.{key}": value for key, value in state.items() if torch.is_tensor(value)}
    return found
