"""All that a training depends on besides its batches, out of PyTorch and back. It imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from polybench.engines.base import Weights


def training_state(tensors: Mapping[str, Any], optimizer: Any, device: Any) -> Weights:
    """Copies, for `put_back`.

    Args:
        tensors: the network's parameters and running statistics, by name.
        optimizer: of these parameters.
        device: where dropout draws its masks.
    """
    found = {**_changing(tensors, optimizer), "generator": torch.get_rng_state()}
    if device.type == "cuda":
        found["device's generator"] = torch.cuda.get_rng_state(device)
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in found.items()}


def put_back(state: Weights, tensors: Mapping[str, Any], optimizer: Any, device: Any, *, rank: int) -> None:
    """The other arguments are those of `training_state`; the optimizer has made a step.

    The generator that was kept is that of `rank` 0; other replicas have one of their own that begins there.
    """
    kept = {name: torch.from_numpy(value) for name, value in state.items()}
    with torch.no_grad():
        for name, tensor in _changing(tensors, optimizer).items():
            tensor.copy_(kept[name])  # in place: a CUDA graph has the addresses
    torch.set_rng_state(kept["generator"])
    if rank:
        torch.manual_seed(int(torch.randint(1 << 62, ())) + rank)
    elif device.type == "cuda":
        torch.cuda.set_rng_state(kept["device's generator"], device)


def _changing(tensors: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """What a step changes."""
    found = dict(tensors)
    for index, state in enumerate(optimizer.state.values()):
        found |= {f"optimizer.{index}.{key}": value for key, value in state.items() if torch.is_tensor(value)}
    return found
