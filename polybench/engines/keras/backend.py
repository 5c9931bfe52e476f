"""The operations of a Keras backend for which Keras itself has no common API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations

LossAndGradients = Callable[[Any, Any], tuple[Any, list[Any]]]
"""(images, labels) -> loss and gradients of `model.trainable_variables`: a training step without the update."""


class Backend:
    """Adapter for a Keras backend; defaults for one that runs synchronously and reports no allocations."""

    def versions(self) -> dict[str, str]:
        """Versions of the backend's packages."""
        raise NotImplementedError

    def build_info(self) -> dict[str, str]:
        """Build details of the backend."""
        raise NotImplementedError

    def configure_process(self, job: Job) -> None:
        """Set thread pools, dtypes and precision of the process explicitly."""
        raise NotImplementedError

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        """Make the function of a training step without the update."""
        raise NotImplementedError

    def synchronize(self, values: list[Any]) -> None:
        """Return when these tensors have been computed."""

    def generator_state(self) -> Weights:
        """Return the state of a global generator from which dropout draws; empty if each layer has its own."""
        return {}

    def restore_generator(self, state: Weights) -> None:
        """Restore a result of `generator_state`, among other arrays."""

    def explain_eager(self) -> str:
        """Return why Keras did not compile the step; "" if it did, or the backend compiles none."""
        return ""

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:  # noqa: ARG002
        """Train, and count allocations per step; empty without a source."""
        return Allocations()

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:  # noqa: ARG002
        """Train these steps, and find allocation sites."""
        raise EngineUnavailable(
            "Keras has no source of allocation sites on this backend",
            "polybench compare --columns native_bytes_per_step counts the total",
        )

    def untraced_native_allocations(self) -> str:
        """Describe small allocations served from pools; see `Engine.untraced_native_allocations`."""
        return ""
