"""The torch engine with PyTorch's own AdamW, and with bugs in its data-parallel training."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from torch import distributed

from polybench.engines.base import Array, Weights
from polybench.engines.job import Job, Rank
from polybench.engines.torch.engine import TorchEngine
from polybench.engines.torch.replicas import Replicas


class DecoupledDecay(TorchEngine):
    """AdamW: weight decay is separate from the gradient."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(torch.optim, "Adam", torch.optim.AdamW):
            super().build(job, weights)


class SummedGradients(TorchEngine):
    """Gradients are summed instead of averaged."""

    def join_process_group(self, rank: Rank) -> None:
        self._replicas = _Summing(rank)


class _Summing(Replicas):
    def wrap(self, model: Any, device: Any) -> Any:
        wrapped = super().wrap(model, device)

        def sum_gradients(_: object, bucket: Any) -> Any:
            work = distributed.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        sum_gradients.__annotations__.clear()  # PyTorch checks them, and rejects strings
        wrapped.register_comm_hook(None, sum_gradients)
        return wrapped


class NoSync(TorchEngine):
    """Each replica trains with its own gradients."""

    def join_process_group(self, rank: Rank) -> None:
        self._replicas = _Unwrapped(rank)


class _Unwrapped(Replicas):
    def wrap(self, model: Any, device: Any) -> Any:
        super().wrap(model, device)
        return model


class SameShard(TorchEngine):
    """All replicas train on rank 0's shard of a batch."""

    def load(self, images: Array, labels: Array) -> None:
        tensors = [torch.tensor(array) for array in (images, labels)]
        for tensor in tensors:
            distributed.broadcast(tensor, 0)
        super().load(*(tensor.numpy() for tensor in tensors))
