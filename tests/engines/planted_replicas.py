"""Engines whose replicas do not train one network together: each has a bug of its own."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from polybench.core.job import Job, Rank
from polybench.engines.base import Array, Weights
from polybench.engines.pytorch.engine import TorchEngine
from polybench.engines.pytorch.replicas import Replicas as TorchReplicas
from polybench.engines.tensorflow import engine as tensorflow_engine
from polybench.engines.tensorflow.engine import TensorFlowEngine
from polybench.engines.tensorflow.replicas import Replicas as TensorFlowReplicas


class TorchSum(TorchEngine):
    """Gradients are added up, and not divided."""

    def join(self, rank: Rank) -> None:
        self._replicas = _Summing(rank)


class _Summing(TorchReplicas):
    def parallel(self, model: Any, device: Any) -> Any:
        from torch import distributed

        found = super().parallel(model, device)

        def add_up(_: object, bucket: Any) -> Any:
            work = distributed.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        add_up.__annotations__.clear()  # PyTorch reads them, and takes no text
        found.register_comm_hook(None, add_up)
        return found


class TorchNoSync(TorchEngine):
    """Each trains by its own gradients."""

    def join(self, rank: Rank) -> None:
        self._replicas = _Unparalleled(rank)


class _Unparalleled(TorchReplicas):
    def parallel(self, model: Any, device: Any) -> Any:
        super().parallel(model, device)
        return model


class TorchSameSlice(TorchEngine):
    """All train on the first one's part of a batch."""

    def load(self, images: Array, labels: Array) -> None:
        import torch
        from torch import distributed

        parts = [torch.tensor(part) for part in (images, labels)]
        for part in parts:
            distributed.broadcast(part, 0)
        super().load(*(part.numpy() for part in parts))


class _TensorFlow(TensorFlowEngine):
    replicas: type[TensorFlowReplicas]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(tensorflow_engine, "Replicas", self.replicas):
            super().build(job, weights)


class TensorFlowSum(_TensorFlow):
    """Every replica has the whole mean loss."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            return super().step_functions(
                model, optimizer, lambda labels, logits: self.count * loss_function(labels, logits)
            )


class TensorFlowNoSync(_TensorFlow):
    """Each trains by its own gradients."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            _, gradients, apart = super().step_functions(model, optimizer, loss_function)
            return apart, gradients, apart


class TensorFlowSameSlice(_TensorFlow):
    """All train on the first one's part of a batch."""

    class replicas(TensorFlowReplicas):  # noqa: N801
        def split(self, value: Any) -> Any:
            import numpy as np

            first = value[: len(value) // self.count]
            return super().split(np.concatenate([first] * self.count))
