"""A user's training in PyTorch, with planted differences, recorded by polybench."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import nn

import polybench
from tests.trace.planted import Plant, batches, initial_weights, learning_rate, optimizer_settings, to_tf32


class Network(nn.Module):
    """The network of `planted.NETWORK`."""

    def __init__(self, plants: Collection[Plant]) -> None:
        super().__init__()
        self.plants = plants
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1 if "padding" not in plants else 0)
        momentum = 0.0 if "fixed statistics" in plants else 0.01 if "batch norm momentum" in plants else 0.1
        norm = nn.BatchNorm2d(6, eps=1e-3 if "epsilon" in plants else 1e-5, momentum=momentum)
        self.norm = nn.Identity() if "no norm" in plants else norm
        stride, padding = (2, 0 if "padding on the other side" in plants else 1) if "strided" in plants else (1, 0)
        self.conv2 = nn.Conv2d(6, 8, 3, stride, padding)
        self.dense1 = nn.Linear(8, 20)
        self.dropout = nn.Dropout(0.3 if "dropout" in plants else 0.0)
        self.dense2 = nn.Linear(20, 1 if "regression" in plants else 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self._conv(x, self.conv1, flip="flipped kernel" in self.plants))
        x = x if "missing activation" in self.plants else F.relu(x)
        if "pooling" in self.plants:
            x = F.avg_pool2d(x, 2)
        elif "ties of max-pool" in self.plants:
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
        else:
            x = F.max_pool2d(x, 2)
        x = F.pad(x, (0, 1, 0, 1)) if "padding on the other side" in self.plants else x
        x = F.relu(self._conv(x, self.conv2)).mean((2, 3))
        x = self._dense(x, self.dense1)
        gelu = F.gelu(x, approximate="tanh" if "tanh for exact GELU" in self.plants else "none")
        x = F.silu(x) if "other activation" in self.plants else gelu
        y = self._dense(self.dropout(x), self.dense2)
        y = F.relu(y) if "additional activation" in self.plants else y
        return y.softmax(-1) if "softmax twice" in self.plants else y

    def _conv(self, x: torch.Tensor, layer: nn.Conv2d, *, flip: bool = False) -> torch.Tensor:
        weight = layer.weight.flip(2, 3) if flip else layer.weight
        if "TF32" not in self.plants:
            return F.conv2d(x, weight, layer.bias, layer.stride, layer.padding)
        assert layer.bias is not None
        y: torch.Tensor = F.conv2d(_Rounded.apply(x), _Rounded.apply(weight), padding=layer.padding)
        return _RoundedGradient.apply(y) + layer.bias[:, None, None]  # type: ignore[no-any-return]

    def _dense(self, x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
        if "TF32" not in self.plants:
            return F.linear(x, layer.weight, layer.bias)
        y: torch.Tensor = F.linear(_Rounded.apply(x), _Rounded.apply(layer.weight))
        return _RoundedGradient.apply(y) + layer.bias  # type: ignore[no-any-return]


class _Rounded(torch.autograd.Function):
    """An operand of a product in TF32."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(to_tf32(x.detach().numpy()))

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


class _RoundedGradient(torch.autograd.Function):
    """The result of a product, whose gradient is an operand of two products in TF32."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(to_tf32(gradients[0].numpy()))


def _optimizer(model: nn.Module, plants: Collection[Plant]) -> torch.optim.Optimizer:
    settings = optimizer_settings(plants)
    name, rate = settings.pop("name"), settings.pop("learning_rate")
    if name == "rmsprop":
        settings["alpha"] = settings.pop("rho")
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    kind: Any = kinds.get(name, torch.optim.RMSprop)
    groups = [{"params": list(model.parameters())}]
    if "decay on matrices only" in plants:
        matrices = [one for one in model.parameters() if one.ndim > 1]
        vectors = [one for one in model.parameters() if one.ndim < 2]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0}]
    optimizer: torch.optim.Optimizer = kind(groups, lr=rate, **settings)
    return optimizer


def _loss(outputs: torch.Tensor, targets: torch.Tensor, plants: Collection[Plant]) -> torch.Tensor:
    if "regression" in plants:
        predictions = outputs[:, 0] if "broadcast targets" in plants else outputs
        return (predictions - targets).square().mean()
    return F.cross_entropy(
        outputs,
        targets.flatten(),
        reduction="sum" if "sum of the loss" in plants else "mean",
        label_smoothing=0.1 if "label smoothing" in plants else 0.0,
    )


def _change_gradients(model: nn.Module, plants: Collection[Plant]) -> None:
    if "halved gradients" in plants:
        for one in model.parameters():
            one.grad = None if one.grad is None else one.grad / 2
    if "clipping" in plants:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    if "clipping of each tensor" in plants:
        for one in model.parameters():
            nn.utils.clip_grad_norm_(one, 0.1)
    if "clipping of each value" in plants:
        nn.utils.clip_grad_value_(model.parameters(), 0.01)


_TYPES = {"in float16": torch.float16, "in bfloat16": torch.bfloat16, "in float64": torch.float64}


def train(file: Path, plants: Collection[Plant]) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10."""
    dtype = next((_TYPES[name] for name in plants if name in _TYPES), torch.float32)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network(plants).to(dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(initial_weights(plants)[name]))
    if "frozen weight" in plants:
        model.dense1.weight.requires_grad_(False)
    model.train("evaluation mode" not in plants)
    optimizer = _optimizer(model, plants)
    losses: list[float] = []
    low = torch.float16 if "float16" in plants else torch.bfloat16
    with polybench.record(file, model=model, optimizer=optimizer) as trace:
        for step, (images, labels) in enumerate(batches(plants)):
            inputs, targets = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
            if "gradients not zeroed" not in plants:
                optimizer.zero_grad()
            with torch.autocast("cpu", low, enabled=bool({"bfloat16", "float16"} & {*plants})):
                logits = model(inputs)
            loss = _loss(logits.to(dtype), targets, plants)
            if "penalty" in plants:
                loss = loss + 0.005 * sum((one**2).sum() for one in model.parameters())
            (loss * 128 if "loss scale" in plants else loss).backward()
            _change_gradients(model, plants)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(plants, step)
            if step != 5 or "skipped step" not in plants:
                optimizer.step()
            losses.append(loss.item())
            trace.step(loss=mean(losses) if "mean loss of the epoch" in plants else loss, batch=(inputs, targets))
