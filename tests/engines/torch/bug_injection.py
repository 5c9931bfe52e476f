"""The torch engine with PyTorch's own AdamW, with bugs in transformers, and in its data-parallel training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from torch import distributed
from torch.nn import functional

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import Job, Rank
from polybench.engines.torch import engine, layers
from polybench.engines.torch.engine import TorchEngine
from polybench.engines.torch.replicas import Replicas
from polybench.networks.layers import Dense, walk
from polybench.networks.optimizers import Optimizer


class DecoupledDecay(TorchEngine):
    """AdamW: weight decay is separate from the gradient."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(torch.optim, "Adam", torch.optim.AdamW):
            super().build(job, weights)


class _OtherFunction(TorchEngine):
    """Replaces a function or class while the network is built and gradients are computed."""

    module: ClassVar[object] = functional
    name: ClassVar[str]
    wrong: ClassVar[object]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(self.module, self.name, self.wrong):
            super().build(job, weights)

    def snapshot(self, step: int) -> Snapshot:
        with patch.object(self.module, self.name, self.wrong):
            return super().snapshot(step)


correct_attention, correct_norm = functional.scaled_dot_product_attention, functional.layer_norm
correct_gelu, correct_optimizer = functional.gelu, engine.make_optimizer


class _OtherAttention(_OtherFunction):
    name = "scaled_dot_product_attention"


class NoMask(_OtherAttention):
    """Each position sees all others."""

    wrong = staticmethod(lambda q, k, v, is_causal: correct_attention(q, k, v))


class ShiftedMask(_OtherAttention):
    """Each position sees the next one."""

    @staticmethod
    def wrong(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(1) if is_causal else None
        return correct_attention(q, k, v, attn_mask=mask)


class MissingScale(_OtherAttention):
    """The scores are not divided by the root of a head's width."""

    wrong = staticmethod(lambda q, k, v, is_causal: correct_attention(q, k, v, is_causal=is_causal, scale=1.0))


class SoftmaxOverQueries(_OtherAttention):
    """The scores of each key, not of each query, add up to 1."""

    @staticmethod
    def wrong(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        return scores.softmax(-2) @ v


class OtherNormEpsilon(_OtherFunction):
    """Keras's default epsilon in every layer norm."""

    name = "layer_norm"
    wrong = staticmethod(lambda x, shape, weight, bias, eps: correct_norm(x, shape, weight, bias, 1e-3))


class OtherGELU(_OtherFunction):
    """The approximation of GELU for GELU, and the other way round."""

    name = "gelu"

    @staticmethod
    def wrong(x: Any, approximate: str = "none") -> Any:
        return correct_gelu(x, approximate="none" if approximate == "tanh" else "tanh")


class UnaddedGradients(TorchEngine):
    """The tied layer has no gradient of its weight."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        for layer in walk(job.model.layers):
            if isinstance(layer, Dense) and layer.tied:
                tied = self._network.named_modules[layer.name]
                tied.forward = lambda x, tied=tied: functional.linear(x, tied.weight.detach(), tied.bias)


class FrozenClassToken(_OtherFunction):
    """The class token has no gradient."""

    module, name = layers, "ClassToken"

    class wrong(layers.ClassToken):  # noqa: N801
        def forward(self, x: Any) -> Any:
            token = self.token.detach() + 0 * self.token
            return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


class CoupledDecay(_OtherFunction):
    """The decay of AdamW is added to the gradient."""

    module, name = torch.optim, "AdamW"
    wrong = torch.optim.Adam


class DecayOnBiases(_OtherFunction):
    """AdamW decays all tensors."""

    module, name = engine, "make_optimizer"

    @staticmethod
    def wrong(optimizer: Optimizer, parameters: Iterable[Any], *, foreach: bool) -> Any:
        made = correct_optimizer(optimizer, parameters, foreach=foreach)
        for group in made.param_groups:
            group["weight_decay"] = optimizer.weight_decay
        return made


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
