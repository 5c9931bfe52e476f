"""Keras on PyTorch: a step is eager. Imported where PyTorch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.job import Job
from polybench.engines.keras.backend import Without
from polybench.engines.keras.foreach_optimizers import FOREACH
from polybench.engines.support.keras.optimizers import Formulas
from polybench.engines.support.torch.allocations import allocations, places
from polybench.engines.support.torch.build_facts import build_facts
from polybench.engines.support.torch.threads import set_threads

_CPU = torch.device("cpu")


class OnTorch(Without):
    """On the CPU a call returns when it is done."""

    def versions(self) -> dict[str, str]:
        return {"torch": str(torch.__version__)}

    def build_facts(self) -> dict[str, str]:
        return build_facts()

    def prepare(self, job: Job) -> None:
        set_threads(job.workload.threads)

    def formulas(self) -> Formulas:
        return FOREACH

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            loss = loss_function(labels, model(images, training=True))
            # Unlike `backward`, `grad` leaves nothing behind in the parameters.
            trained = [variable.value for variable in model.trainable_variables]
            return loss.detach(), list(torch.autograd.grad(loss, trained))

        return loss_and_gradients

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return allocations(train, steps, _CPU)

    def allocation_places(self, run_step: Callable[[int], object], steps: range) -> Places:
        return places(run_step, steps, _CPU)
