"""Checkpoints of a training in PyTorch, and what its variants need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable


def check_cudagraph_support(job: Job) -> None:
    """Raise EngineUnavailable if a CUDA graph cannot capture the job's step."""
    if job.device == "cpu":
        raise EngineUnavailable("cudagraph needs a CUDA device", "use --devices cuda")
    if job.workload.is_forward_pass:
        raise EngineUnavailable("cudagraph does not have the forward pass yet", "omit +cudagraph")
    if job.workload.optimizer.has_schedule:
        raise EngineUnavailable("a CUDA graph has a constant learning rate", "omit the learning-rate schedule")
    if job.workload.optimizer.betas:
        # torch 2.13, `capturable=True`: 1 - 0.999^t from a float32 step tensor, even for float64 weights.
        raise EngineUnavailable(
            "in a CUDA graph, PyTorch's Adam computes its bias correction in float32, with an error of 1e-5",
            "use another optimizer, or torch+compile",
        )


def compiled_graphs() -> int:
    """Count the graphs that TorchInductor has compiled in this process; 0 if it compiled any of them with an error."""
    from torch._dynamo.utils import counters  # takes a second, so only if needed

    by_inductor = counters["inductor"] and not counters["aot_autograd"]["not_ok"]
    return int(counters["stats"]["unique_graphs"]) if by_inductor else 0


def training_state(tensors: Mapping[str, Any], optimizer: Any, device: Any) -> Weights:
    """Copy the network's tensors, the optimizer's state and the generators of dropout to NumPy arrays."""
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
