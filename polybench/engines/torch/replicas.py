"""Idiomatic data-parallel training in PyTorch: DistributedDataParallel with one process per replica.

Each process has a copy of the network. Gradients are averaged bucket by bucket during the backward pass
(https://docs.pytorch.org/docs/stable/notes/ddp.html), with Gloo on the CPU and NCCL on GPUs, as PyTorch's
documentation recommends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed

from polybench.engines.job import SINGLE_RANK, Job, Rank
from polybench.engines.shared.frameworks import reject_batch_norm, reject_variants

_BATCH_NORM = "torch.nn.parallel.DistributedDataParallel broadcasts rank 0's; SyncBatchNorm is for GPUs"
_VARIANTS = ("channels_last", "foreach", "math_attention")


class Replicas:
    """Membership of this process, with its `rank`, in a process group; does nothing for a single process."""

    def __init__(self, rank: Rank = SINGLE_RANK) -> None:
        self.rank = rank

    @property
    def is_distributed(self) -> bool:
        """True if there are several ranks."""
        return self.rank.count > 1

    def check(self, job: Job) -> None:
        """Raise EngineUnavailable if data-parallel training would differ from training in one process."""
        if self.is_distributed:
            reject_batch_norm(job, _BATCH_NORM)
            reject_variants(job, _VARIANTS)

    def device(self, job: Job) -> str:
        """Return this rank's device name: rank 0 has the job's device, the others the next ones."""
        if not self.is_distributed or job.device == "cpu":
            return job.device
        first = int(job.device.partition(":")[2] or 0)
        return f"cuda:{first + self.rank.number}"

    def threads(self, job: Job) -> int:
        """Return this rank's share of the job's threads."""
        return max(1, job.workload.threads // self.rank.count)

    def join_group(self, device: Any) -> None:
        """Join the process group, in which the program's DistributedDataParallel averages gradients."""
        if not self.is_distributed or distributed.is_initialized():
            return

        # By default, gloo listens on the address of the hostname, which other machines may reach.
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"file://{self.rank.rendezvous_file}",
            rank=self.rank.number,
            world_size=self.rank.count,
        )

    def network(self, model: Any) -> Any:
        """Return the network inside of a model of the program."""
        return model.module if self.is_distributed else model

    def mean(self, value: Any) -> Any:
        """Average a value over all ranks; every rank must call it."""
        if not self.is_distributed:
            return value

        value = value.clone()
        distributed.all_reduce(value)
        return value / self.rank.count

    def gradients(self, loss: Any, parameters: Sequence[Any]) -> Sequence[Any]:
        """Compute the gradients of the mean loss of all ranks, as a training step would."""
        if not self.is_distributed:
            # Unlike `backward`, `grad` stores nothing in the parameters.
            return torch.autograd.grad(loss, parameters)  # type: ignore[no-any-return]
        for parameter in parameters:
            parameter.grad = None
        loss.backward()  # only `backward` exchanges gradients
        gradients = [parameter.grad.clone() for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        return gradients

    def leave_group(self) -> None:
        """Leave the process group."""
        if self.is_distributed and distributed.is_initialized():
            distributed.destroy_process_group()
