"""A second PyTorch device in Python: values are computed on the CPU, mixed devices fail as on a GPU.

PyTorch reserves the key PrivateUse1 for devices that are not its own. Call `register` in a process of its own,
since a registration cannot be undone. The interface is experimental, see
`torch.utils.backend_registration._setup_privateuseone_for_python_backend`.
LSTM cells have no operator for such a device.
"""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import Job
from polybench.engines.torch import engine
from polybench.engines.torch.engine import TorchEngine
from tests.engines.engine_fixtures import FrameworkMissing

try:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
except ImportError:
    raise FrameworkMissing(f"PyTorch {torch.__version__} has no devices in Python") from None

NAME = "standin"
COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


class StandInTensor(torch.Tensor):
    """Tensor on the stand-in device; `values` has the same shape, strides and type on the CPU."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> StandInTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.values = values
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operator, *args, **(kwargs or {}))


@functools.cache
def register() -> torch.device:
    """Register the device in this process, once, and return it."""
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")
    library.fallback(_compute, "PrivateUse1")
    _libraries.append(library)
    # `Module.to` would replace a weight that two layers share by two weights; between CPU and CUDA it does not.
    torch.__future__.set_swap_module_params_on_conversion(True)
    return torch.device(NAME, 0)


_libraries: list[torch.library.Library] = []  # a registration ends with its object


def _compute(operator: Any, *args: Any, **kwargs: Any) -> Any:
    leaves = tree_leaves((args, kwargs))
    on_cpu = [leaf for leaf in leaves if type(leaf) is not StandInTensor and isinstance(leaf, torch.Tensor)]
    if operator not in COPIES and any(tensor.ndim for tensor in on_cpu):  # numbers may be on the CPU
        raise RuntimeError(f"{operator}: expected all tensors to be on the same device, but found {NAME}:0 and cpu")
    target = kwargs.get("device")
    if target is not None:
        kwargs["device"] = torch.device("cpu")
    wrapped = {id(leaf.values): leaf for leaf in leaves if isinstance(leaf, StandInTensor)}
    result = operator(*_map(args, _values), **_map(kwargs, _values))
    if target is not None and torch.device(target).type == "cpu":
        return result

    def to_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        argument = wrapped.get(id(value))  # an operator in place returns its argument
        return StandInTensor(value) if argument is None else argument

    if operator is torch.ops.aten.copy_.default and type(args[0]) is not StandInTensor:
        return args[0]
    return _map(result, to_device)


def _values(value: Any) -> Any:
    return value.values if isinstance(value, StandInTensor) else value


def _map(tree: Any, function: Any) -> Any:
    return tree_map(function, tree)


class StandInEngine(TorchEngine):
    """The torch engine, which finds the stand-in device wherever a job asks for one."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "find_device", lambda _: register()):
            super().build(job, weights)

    def logits(self, images: Array) -> Array:
        # A view of a parameter, which is no inference tensor, fails in inference mode on a device in Python.
        with patch.object(torch, "inference_mode", torch.no_grad):
            return super().logits(images)


class LabelsOnCPU(StandInEngine):
    """Leaves the labels on the CPU."""

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        self._batches = [(x, y.cpu()) for x, y in self._batches]


class MasksOnCPU(StandInEngine):
    """Leaves the masks of dropout on the CPU."""

    def _masks(self, step: int) -> dict[str, Any]:
        return {name: mask.cpu() for name, mask in super()._masks(step).items()}


class LateSnapshot(StandInEngine):
    """Reads the loss and gradients of a snapshot after the update of its step."""

    def snapshot(self, step: int) -> Snapshot:
        self.run_steps(step, 1)
        return super().snapshot(step)
