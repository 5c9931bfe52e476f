"""Modules of PyTorch that differ where a short proof does not look."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Usual(nn.Module):
    """A network whose subclasses differ where a short proof does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.dense = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        return self.dense(functional.relu(self.norm(self.conv(x))).mean([2, 3]))


class Chunks(Usual):
    def forward(self, x: Any) -> Any:
        return torch.cat([super(Chunks, self).forward(part) for part in x.chunk(math.ceil(len(x) / 32))])


class LargeBatch(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if len(x) <= 64 else 2 * super().forward(x)


class FirstRows(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if len(x) <= 100 else torch.cat([y[:1], y[1:].detach()])


class SmallBatch(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if len(x) in (2, 128) else super().forward(x.abs().sqrt())


class NegativeInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if self.training else -super().forward(x)


class SeveralOutputsInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.training else (y, x)


class BatchStatisticsInEvaluation(Usual):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.train()
        return self


class OtherDropoutInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.training else functional.relu(y)


def with_gradient(tensor: Any, factor: Any) -> Any:
    """Return the same values, whose gradient is `factor` times as large; the exported program is the usual one."""
    return tensor if torch.compiler.is_exporting() else tensor.detach() + factor * (tensor - tensor.detach())


class ZeroWeights(Usual):
    def __init__(self) -> None:
        super().__init__()
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Any) -> Any:
        x = functional.conv2d(x, with_gradient(self.conv.weight, 1.001), self.conv.bias)
        return self.dense(functional.relu(self.norm(x)).mean([2, 3]))


class Capped(Usual):
    """Differs only for large activations, which the model's own weights do not have."""

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        return self.dense(functional.relu(self.norm(with_gradient(x, x.detach() < 9))).mean([2, 3]))


class ScaledAtTheEnd(Usual):
    """Changes the gradient after `backward` has computed it, which `autograd.grad` does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.dense.weight.register_post_accumulate_grad_hook(self.scale)

    def scale(self, parameter: Any) -> None:
        parameter.grad.mul_(1.001)


class PythonDraws(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if random.random() < 0.999 else -super().forward(x)


class NumpyDraws(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if np.random.random() < 0.999 else -super().forward(x)  # noqa: NPY002


class DrawsInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if self.training or torch.rand(1).item() < 0.999 else -super().forward(x)


class DropoutInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return functional.dropout(super().forward(x), 0.5)


class FixedBatch(Usual):
    def forward(self, x: Any) -> Any:
        return self.dense(functional.relu(self.norm(self.conv(x))).mean([2, 3]).reshape(2, 4))


class Reviews(nn.Module):
    """Marks one token of many, which has no gradient."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.embedding, self.dense = nn.Embedding(3000, 4), nn.Linear(4, 3)
        self.padding = padding

    def forward(self, x: Any) -> Any:
        if self.padding is None:
            return self.dense(self.embedding(x).mean(1))
        others = (torch.arange(3000) != self.padding)[:, None]
        return self.dense(functional.embedding(x, with_gradient(self.embedding.weight, others)).mean(1))
