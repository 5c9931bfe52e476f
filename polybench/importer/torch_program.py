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
from polybench.engines.shared.program import import_program
from polybench.engines.torch.emitter import emit_optimizer
from polybench.importer.proof import Result
from polybench.importer.torch_module import only_tensor
from polybench.networks.optimizers import Optimizer


class TorchProgram:
    """The module itself, with its hooks, in float64 until `close`; in training, its dropout has given masks."""

    conventions = NO_DEVIATIONS
    rounding = 0.0

    def __init__(self, module: Any, optimizer: Optimizer, *, returns_probabilities: bool) -> None:
        self._module, self._settings, self._returns_probabilities = module, optimizer, returns_probabilities
        self._tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._original = {name: (tensor.data, tensor.grad) for name, tensor in self._tensors.items()}
        self._modes = {one: one.training for one in module.modules()}
        for tensor in self._tensors.values():
            tensor.grad = None
            tensor.data = tensor.data.double() if tensor.is_floating_point() else tensor.data.clone()

    def close(self) -> None:
        """Restore the module: its numbers, gradients, types and modes."""
        for name, tensor in self._tensors.items():
            tensor.data, tensor.grad = self._original[name]
        for module, mode in self._modes.items():
            module.training = mode

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        return {name: np.array(tensor.detach().numpy(), order="C") for name, tensor in self._tensors.items()}

    def start(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.copy_(torch.from_numpy(values[name]))
        self._trained = {name: one for name, one in self._module.named_parameters() if one.requires_grad}
        self._optimizer = import_program(emit_optimizer(self._settings), None).make_optimizer(self._module)

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        self._module.train()
        self._optimizer.zero_grad()
        with _GivenMasks(iter(masks.values())):
            output = self._output(inputs)
        scores = output.flatten(0, -2)
        log = scores.log() if self._returns_probabilities else functional.log_softmax(scores, -1)
        loss = functional.nll_loss(log, torch.from_numpy(labels).flatten())
        loss.backward()
        gradients = {name: np.array(_gradient(one).numpy()) for name, one in self._trained.items()}
        self._optimizer.step()
        return Result(loss.item(), gradients)

    def evaluate(self, inputs: Array) -> Array:  # noqa: D102
        self._module.eval()
        with torch.no_grad():
            return np.array(self._output(inputs).numpy())

    def generators(self) -> Mapping[str, bytes]:  # noqa: D102
        return {"PyTorch": torch.get_rng_state().numpy().tobytes()}

    def _output(self, inputs: Array) -> Any:
        batch = torch.from_numpy(inputs)
        return only_tensor(self._module(batch if batch.is_floating_point() else batch.long()))


def _gradient(parameter: Any) -> Any:
    """Return the gradient that `backward` left; None is zero."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()


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
        if not is_active:
            return x
        if (mask := next(self._masks, None)) is None:
            raise RuntimeError("dropout is called more often than in the network")
        return x * torch.from_numpy(mask).reshape(x.shape)
