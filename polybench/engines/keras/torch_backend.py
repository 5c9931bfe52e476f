"""Keras on PyTorch: the step is eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.keras.backend import Backend, LossAndGradients
from polybench.engines.shared import pytorch
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TorchBackend(Backend):
    def versions(self) -> dict[str, str]:
        return {"torch": str(torch.__version__)}

    def build_info(self) -> dict[str, str]:
        return pytorch.build_info()

    def configure_process(self, job: Job) -> None:
        pytorch.set_threads(job.workload.threads)

    def generator_state(self) -> Weights:
        return {"generator": torch.get_rng_state().numpy().copy()}

    def restore_generator(self, state: Weights) -> None:
        torch.set_rng_state(torch.from_numpy(state["generator"].copy()))

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            loss = loss_function(labels, model(images, training=True))
            # Unlike `backward`, `grad` stores nothing in the parameters.
            trained = [variable.value for variable in model.trainable_variables]
            return loss.detach(), list(torch.autograd.grad(loss, trained))

        return loss_and_gradients

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return pytorch.count_allocations(train, steps, torch.device("cpu"))

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        return pytorch.find_allocation_sites(run_step, steps, torch.device("cpu"))
