"""A user's training in PyTorch, with planted differences, recorded by polybench."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import nn

import polybench
from tests.trace.planted import Plant, batches, initial_weights, optimizer_settings


class Network(nn.Module):
    """The network of `planted.NETWORK`."""

    def __init__(self, plants: Collection[Plant]) -> None:
        super().__init__()
        self.plants = plants
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1 if "padding" not in plants else 0)
        self.norm = nn.BatchNorm2d(
            6, eps=1e-3 if "epsilon" in plants else 1e-5, momentum=0.01 if "batch norm momentum" in plants else 0.1
        )
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.dense1 = nn.Linear(8, 20)
        self.dropout = nn.Dropout(0.3 if "dropout" in plants else 0.0)
        self.dense2 = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(_conv(x, self.conv1, flip="flipped kernel" in self.plants))
        x = x if "missing activation" in self.plants else F.relu(x)
        x = F.avg_pool2d(x, 2) if "pooling" in self.plants else F.max_pool2d(x, 2)
        x = F.relu(self.conv2(x)).mean((2, 3))
        x = F.gelu(self.dense1(x), approximate="tanh" if "tanh for exact GELU" in self.plants else "none")
        y: torch.Tensor = self.dense2(self.dropout(x))
        return y


def _conv(x: torch.Tensor, layer: nn.Conv2d, *, flip: bool) -> torch.Tensor:
    weight = layer.weight.flip(2, 3) if flip else layer.weight
    return F.conv2d(x, weight, layer.bias, padding=layer.padding)


def _optimizer(model: nn.Module, plants: Collection[Plant]) -> torch.optim.Optimizer:
    settings = optimizer_settings(plants)
    name, rate = settings.pop("name"), settings.pop("learning_rate")
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    groups = [{"params": list(model.parameters())}]
    if "decay on matrices only" in plants:
        matrices = [one for one in model.parameters() if one.ndim > 1]
        vectors = [one for one in model.parameters() if one.ndim < 2]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0}]
    return kind(groups, lr=rate, **settings)


def train(file: Path, plants: Collection[Plant], dtype: torch.dtype = torch.float32) -> None:
    """Train eleven steps and record steps 0, 1, 2 and 10."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network(plants).to(dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(initial_weights(plants)[name]))
    if "frozen weight" in plants:
        model.dense1.weight.requires_grad_(False)
    optimizer = _optimizer(model, plants)
    with polybench.record(file, model=model, optimizer=optimizer) as trace:
        for images, labels in batches(plants):
            inputs, targets = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
            if "gradients not zeroed" not in plants:
                optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in plants):
                logits = model(inputs)
            loss = F.cross_entropy(
                logits.to(dtype),
                targets,
                reduction="sum" if "sum of the loss" in plants else "mean",
                label_smoothing=0.1 if "label smoothing" in plants else 0.0,
            )
            if "penalty" in plants:
                loss = loss + 0.005 * sum((one**2).sum() for one in model.parameters())
            loss.backward()
            if "clipping" in plants:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            trace.step(loss=loss, batch=(inputs, targets))
