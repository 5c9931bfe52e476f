"""Engines with a bug in their data-parallel training."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from polybench.engines.base import Array, Weights
from polybench.engines.job import Job, Rank
from polybench.engines.tf import engine as tensorflow_engine
from polybench.engines.tf.engine import TensorFlowEngine
from polybench.engines.tf.replicas import Replicas as TensorFlowReplicas
from polybench.engines.torch.engine import TorchEngine
from polybench.engines.torch.replicas import Replicas as TorchReplicas


class TorchSum(TorchEngine):
    """Gradients are summed instead of averaged."""

    def join_process_group(self, rank: Rank) -> None:
        self._replicas = _Summing(rank)


class _Summing(TorchReplicas):
    def wrap(self, model: Any, device: Any) -> Any:
        from torch import distributed

        wrapped = super().wrap(model, device)

        def sum_gradients(_: object, bucket: Any) -> Any:
            work = distributed.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        sum_gradients.__annotations__.clear()  # PyTorch checks them, and rejects strings
        wrapped.register_comm_hook(None, sum_gradients)
        return wrapped


class TorchNoSync(TorchEngine):
    """Each replica trains with its own gradients."""

    def join_process_group(self, rank: Rank) -> None:
        self._replicas = _Unwrapped(rank)


class _Unwrapped(TorchReplicas):
    def wrap(self, model: Any, device: Any) -> Any:
        super().wrap(model, device)
        return model


class TorchSameSlice(TorchEngine):
    """All replicas train on rank 0's shard of a batch."""

    def load(self, images: Array, labels: Array) -> None:
        import torch
        from torch import distributed

        tensors = [torch.tensor(array) for array in (images, labels)]
        for tensor in tensors:
            distributed.broadcast(tensor, 0)
        super().load(*(tensor.numpy() for tensor in tensors))


class _TensorFlow(TensorFlowEngine):
    replicas: type[TensorFlowReplicas]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(tensorflow_engine, "Replicas", self.replicas):
            super().build(job, weights)


class TensorFlowSum(_TensorFlow):
    """Each replica's loss is not scaled by the number of replicas."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            return super().step_functions(
                model, optimizer, lambda labels, logits: self.count * loss_function(labels, logits)
            )


class TensorFlowNoSync(_TensorFlow):
    """Each replica trains with its own gradients."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            _, gradients, step_without_allreduce = super().step_functions(model, optimizer, loss_function)
            return step_without_allreduce, gradients, step_without_allreduce


class TensorFlowSameSlice(_TensorFlow):
    """All replicas train on the first shard of a batch."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def split(self, value: Any) -> Any:
            import numpy as np

            first = value[: len(value) // self.count]
            return super().split(np.concatenate([first] * self.count))
