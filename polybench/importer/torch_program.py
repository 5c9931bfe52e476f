"""A user's PyTorch module in float64, for the proof."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from polybench.engines.base import Array
from polybench.engines.job import NO_DEVIATIONS
from polybench.importer.proof import Result
from polybench.importer.torch_module import first_tensor


class TorchProgram:
    """The module itself, with its hooks, in float64 and in training until `close`; its dropout has given masks."""

    conventions = NO_DEVIATIONS

    def __init__(self, module: Any, *, returns_probabilities: bool) -> None:
        self._module, self._returns_probabilities = module, returns_probabilities
        self._tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._original = {name: tensor.data for name, tensor in self._tensors.items()}
        self._modes = {one: one.training for one in module.modules()}
        for tensor in self._tensors.values():
            tensor.data = tensor.data.double() if tensor.is_floating_point() else tensor.data.clone()
        module.train()

    def close(self) -> None:
        """Restore the module: its numbers, types and modes."""
        for name, tensor in self._tensors.items():
            tensor.data = self._original[name]
        for module, mode in self._modes.items():
            module.training = mode

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        return {name: np.array(tensor.detach().numpy(), order="C") for name, tensor in self._tensors.items()}

    def assign(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.copy_(torch.from_numpy(values[name]))

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        batch = torch.from_numpy(inputs)
        with _GivenMasks(iter(masks.values())):
            output = first_tensor(self._module(batch if batch.is_floating_point() else batch.long()))
        scores = output.flatten(0, -2)
        targets = torch.from_numpy(labels).flatten()
        log = scores.log() if self._returns_probabilities else functional.log_softmax(scores, -1)
        loss = functional.nll_loss(log, targets)
        parameters = {name: one for name, one in self._module.named_parameters() if one.requires_grad}
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        return Result(loss.item(), {name: one.numpy() for name, one in zip(parameters, gradients, strict=True)})


class _GivenMasks(TorchFunctionMode):  # type: ignore[misc]
    """Replaces `functional.dropout`, which every dropout module calls, by a product with the next mask."""

    def __init__(self, masks: Iterator[Array]) -> None:
        super().__init__()
        self._masks = masks

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is not functional.dropout:
            return function(*args, **kwargs)
        given = inspect.signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        x = given.arguments["input"]
        is_active = given.arguments["p"] and given.arguments["training"]
        return x * torch.from_numpy(next(self._masks)).reshape(x.shape) if is_active else x
