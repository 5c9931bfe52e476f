"""Keras on PyTorch: the step is eager. This module imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polybench.engines.job import Job
from polybench.engines.keras.backend import NoOpBackend
from polybench.engines.keras.foreach_optimizers import FOREACH_OPTIMIZERS
from polybench.engines.shared.keras_common.optimizers import OptimizerClasses
from polybench.engines.shared.torch_common.allocations import count_allocations, find_allocation_sites
from polybench.engines.shared.torch_common.build_info import build_info
from polybench.engines.shared.torch_common.threads import set_threads
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations

_CPU = torch.device("cpu")


class TorchBackend(NoOpBackend):
    """PyTorch adapter; on the CPU, calls are synchronous."""

    def versions(self) -> dict[str, str]:
        return {"torch": str(torch.__version__)}

    def build_info(self) -> dict[str, str]:
        return build_info()

    def configure_process(self, job: Job) -> None:
        set_threads(job.workload.threads)

    def optimizer_classes(self) -> OptimizerClasses:
        return FOREACH_OPTIMIZERS

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            loss = loss_function(labels, model(images, training=True))
            # Unlike `backward`, `grad` stores nothing in the parameters.
            trained = [variable.value for variable in model.trainable_variables]
            return loss.detach(), list(torch.autograd.grad(loss, trained))

        return loss_and_gradients

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return count_allocations(train, steps, _CPU)

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        return find_allocation_sites(run_step, steps, _CPU)
