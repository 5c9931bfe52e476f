"""Data-parallel training as PyTorch's users have it: a process a replica, DistributedDataParallel.

It keeps a copy of the network in each process, and takes the mean of the gradients while they are computed,
bucket by bucket (https://docs.pytorch.org/docs/stable/notes/ddp.html). Gloo carries them on the CPU, NCCL on
GPUs, which the same page's table of backends advises.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from polybench.core.job import ALONE, Job, Rank
from polybench.engines.support.replicas import refuse_batch_norm, refuse_variants

_BATCH_NORM = "torch.nn.parallel.DistributedDataParallel broadcasts rank 0's; SyncBatchNorm is for GPUs"
_VARIANTS = ("channels_last", "foreach")


class Replicas:
    """This process as one of several; alone, it does nothing.

    Attributes:
        rank: which one it is.
    """

    def __init__(self, rank: Rank = ALONE) -> None:
        self.rank = rank
        self._parallel: Any = None

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self.rank.count > 1

    def check(self, job: Job) -> None:
        """Raise Unavailable where replicas cannot train this as one process would."""
        if self.several:
            refuse_batch_norm(job, _BATCH_NORM)
            refuse_variants(job, _VARIANTS)

    def device(self, job: Job) -> str:
        """That of this rank, as a job names it: the first has the job's own, the others the next ones."""
        if not self.several or job.device == "cpu":
            return job.device
        first = int(job.device.partition(":")[2] or 0)
        return f"cuda:{first + self.rank.number}"

    def threads(self, job: Job) -> int:
        """Those of this rank, of the job's."""
        return max(1, job.workload.threads // self.rank.count)

    def parallel(self, model: Any, device: Any) -> Any:
        """The model to train with: itself, or one whose backward pass leaves everybody's mean gradients."""
        if not self.several:
            return model
        from torch import distributed
        from torch.nn.parallel import DistributedDataParallel

        if not distributed.is_initialized():
            # By itself gloo takes the address of the host's name, which others may reach.
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
            distributed.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                init_method=f"file://{self.rank.meeting}",
                rank=self.rank.number,
                world_size=self.rank.count,
            )
        self._parallel = DistributedDataParallel(model)
        return self._parallel

    def apart(self) -> Any:
        """A context in which gradients are not exchanged."""
        return self._parallel.no_sync()

    def mean(self, value: Any) -> Any:
        """Over all replicas; each has to ask for it."""
        if not self.several:
            return value
        from torch import distributed

        value = value.clone()
        distributed.all_reduce(value)
        return value / self.rank.count

    def gradients(self, loss: Any, parameters: Sequence[Any]) -> Sequence[Any]:
        """Of the mean loss of all replicas: those that a training step would leave in the parameters."""
        import torch

        if not self.several:
            # Unlike `backward`, `grad` leaves nothing behind in the parameters.
            return torch.autograd.grad(loss, parameters)  # type: ignore[no-any-return]
        for parameter in parameters:
            parameter.grad = None
        loss.backward()  # only this exchanges them
        found = [parameter.grad.clone() for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        return found

    def leave(self) -> None:
        """End what keeps the processes together."""
        if self.several:
            from torch import distributed

            if distributed.is_initialized():
                distributed.destroy_process_group()
