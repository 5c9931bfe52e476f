"""The torch engine with PyTorch's own AdamW, with bugs in transformers, and in its data-parallel training."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from torch import distributed
from torch.nn import functional, parallel

from polybench.engines.base import Array, Snapshot, Weights
from polybench.engines.job import Job
from polybench.engines.torch import engine
from polybench.engines.torch.engine import TorchEngine


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
correct_gelu, correct_emit = functional.gelu, engine.emit


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


class _OtherProgram(TorchEngine):
    """Changes the text of the program, if it has such a part."""

    pattern: ClassVar[str]
    replacement: ClassVar[str]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", self._emit):
            super().build(job, weights)

    def _emit(self, job: Job) -> str:
        return re.sub(self.pattern, self.replacement, correct_emit(job))


class UnaddedGradients(_OtherProgram):
    """The tied layer has no gradient of its weight."""

    pattern, replacement = r"(F\.linear\(.*, self\.\w+\.weight)", r"\1.detach()"


class FrozenClassToken(_OtherProgram):
    """The class token has no gradient."""

    pattern, replacement = r"\[(self\.\w+)\.expand", r"[(\1.detach() + 0 * \1).expand"


class CoupledDecay(_OtherFunction):
    """The decay of AdamW is added to the gradient."""

    module, name = torch.optim, "AdamW"
    wrong = torch.optim.Adam


class DecayOnBiases(_OtherProgram):
    """AdamW decays all tensors."""

    pattern, replacement = r'(?s)("weight_decay": )(\S+)(}.*"weight_decay": )0\.0', r"\1\2\g<3>\2"


class SummedGradients(TorchEngine):
    """Gradients are summed instead of averaged."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(parallel, "DistributedDataParallel", _Summing):
            super().build(job, weights)


class _Summing(parallel.DistributedDataParallel):  # type: ignore[misc]
    def __init__(self, network: Any) -> None:
        super().__init__(network)

        def sum_gradients(_: object, bucket: Any) -> Any:
            work = distributed.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        sum_gradients.__annotations__.clear()  # PyTorch checks them, and rejects strings
        self.register_comm_hook(None, sum_gradients)


class NoSync(TorchEngine):
    """Each replica trains with its own gradients."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(parallel, "DistributedDataParallel", _Unconnected):
            super().build(job, weights)


class _Unconnected(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return self.module(x)


class SameShard(TorchEngine):
    """All replicas train on rank 0's shard of a batch."""

    def load(self, images: Array, labels: Array) -> None:
        tensors = [torch.tensor(array) for array in (images, labels)]
        for tensor in tensors:
            distributed.broadcast(tensor, 0)
        super().load(*(tensor.numpy() for tensor in tensors))
