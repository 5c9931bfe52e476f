"""Modules of PyTorch whose parts and arguments the tests vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name


class Images(nn.Module):
    """The part between convolution and head, the part after the head, and the pool before it."""

    def __init__(self, part: Any, last: Any = None, pool: Callable[[Any], Any] = lambda x: x.mean((2, 3))) -> None:
        super().__init__()
        self.conv, self.part, self.dense, self.last = nn.Conv2d(3, 8, 3), part, nn.Linear(8, 5), last or nn.Identity()
        self.pool = pool

    def forward(self, x: Any) -> Any:
        return self.last(self.dense(self.pool(self.part(self.conv(x)))))


class Text(nn.Module):
    """The embedding, and the part between it and the head."""

    def __init__(self, embedding: Any, part: Any) -> None:
        super().__init__()
        self.embedding, self.part, self.dense = embedding, part, nn.Linear(8, 5)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        y = self.part(x, x, x, need_weights=False) if isinstance(self.part, nn.MultiheadAttention) else self.part(x)
        return self.dense((y[0] if isinstance(y, tuple) else y).mean(1))


class Masked(nn.Module):
    """Attention with the mask that a function makes of the length, if any."""

    def __init__(self, mask: Callable[[int], Any] | None, scale: float | None = None) -> None:
        super().__init__()
        self.qkv, self.out, self.mask, self.scale = nn.Linear(8, 24), nn.Linear(8, 8), mask, scale

    def forward(self, x: Any) -> Any:
        batch, time, _ = x.shape
        q, k, v = (one.view(batch, time, 2, 4).transpose(1, 2) for one in self.qkv(x).split(8, 2))
        mask = self.mask and self.mask(time)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        return self.out(y.transpose(1, 2).reshape(batch, time, 8))


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Mean(nn.Module):
    """The mean over the time of an embedding without a module."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.rows, self.dense = nn.Parameter(torch.zeros(9, 8)), nn.Linear(features, 3)

    def forward(self, x: Any) -> Any:
        return self.dense(F.embedding(x, self.rows).mean(1))


class Rolling(nn.Module):
    """Positions that each forward pass moves by one; after the second, they are those of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(6, 8)
        self.register_buffer("places", torch.arange(4, 10) % 6)

    def forward(self, x: Any) -> Any:
        self.places.add_(1).remainder_(6)
        return x + self.rows(self.places)


class Weight(nn.Parameter):
    """A user's own kind of parameter."""


class ConfusedImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4, eps=0.02, momentum=0.3)
        self.first, self.second = nn.Linear(4 * 5 * 5, 5), nn.Linear(5, 6)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.conv(F.pad(x, (1, 2, 3, 0)))))
        x = F.avg_pool2d(x, 2, 2, padding=1)
        x = self.first(F.dropout(x.flatten(1), 0.5, training=False))
        return self.second(torch.cat([x[:, 3:], x[:, :3]], 1))


class ConfusedSequences(nn.Module):
    def __init__(self, diagonal: int = 0, *, is_last: bool = False) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.ones(1, 1, 4))
        self.projections, self.output, self.head = nn.Linear(4, 12), nn.Linear(4, 4), nn.Linear(4, 3)
        self.mask, self.is_last = torch.ones(6, 6).tril(diagonal).bool(), is_last

    def forward(self, x: Any) -> Any:
        parts = [self.token.expand(2, 1, 4), x]
        x = torch.cat(parts[::-1] if self.is_last else parts, 1)
        q, k, v = (part.view(2, 6, 2, 2).transpose(1, 2) for part in self.projections(x).chunk(3, 2))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return self.head(self.output(x.transpose(1, 2).reshape(2, 6, 4))[:, 0])
