"""Keras backends: the operations for which Keras itself has no common API."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations

if TYPE_CHECKING:
    from polybench.engines.shared.keras_common.optimizers import OptimizerClasses


class Backend(Protocol):
    """Adapter for a Keras backend that this process has imported."""

    def versions(self) -> dict[str, str]:
        """Versions of the backend's packages."""
        ...

    def build_info(self) -> dict[str, str]:
        """Build details of the backend."""
        ...

    def configure_process(self, job: Job) -> None:
        """Set thread pools, dtypes and precision of the process explicitly."""
        ...

    def optimizer_classes(self) -> OptimizerClasses:
        """Return optimizers that update variables in the same way as Keras's own with this backend."""
        ...

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        """Make the function (images, labels) -> loss and gradients of `model.trainable_variables`.

        It computes a training step without the update.
        """
        ...

    def synchronize(self, values: list[Any]) -> None:
        """Return when these tensors have been computed."""
        ...

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        """Train, and count allocations per step; empty without a source."""
        ...

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        """Train these steps, and find allocation sites; see `Engine.allocation_sites`."""
        ...

    def untraced_native_allocations(self) -> str:
        """Describe allocations served from pools; see `Engine.untraced_native_allocations`."""
        ...


class NoOpBackend:
    """Defaults for a backend that compiles the whole step, runs synchronously and counts no allocations."""

    def optimizer_classes(self) -> OptimizerClasses:
        """Return the per-variable classes: in a compiled step, all formulations are equivalent."""
        from polybench.engines.shared.keras_common.optimizers import PER_VARIABLE

        return PER_VARIABLE

    def synchronize(self, values: list[Any]) -> None:
        """Do nothing, since calls return when they have finished."""

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:  # noqa: ARG002
        """Return empty counts."""
        return Allocations()

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:  # noqa: ARG002
        """Raise EngineUnavailable."""
        raise EngineUnavailable(
            "Keras has no source of allocation sites on this backend",
            "polybench compare --columns native_bytes_per_step counts the total",
        )

    def untraced_native_allocations(self) -> str:
        """Return "", since all allocations reach the C library or the kernel."""
        return ""


class BackendSpec(NamedTuple):
    """Module, product name and polybench extra of a backend, and `module:class` of its adapter."""

    module: str
    product: str
    extra: str
    adapter: str


BACKENDS = {
    "tensorflow": BackendSpec("tensorflow", "TensorFlow", "tf", "tensorflow_backend:TensorFlowBackend"),
    "torch": BackendSpec("torch", "PyTorch", "torch", "torch_backend:TorchBackend"),
    "jax": BackendSpec("jax", "JAX", "jax", "jax_backend:JaxBackend"),
}


def find_backend(name: str) -> Backend:
    """Import and create the adapter of a backend."""
    module, _, adapter = BACKENDS[name].adapter.partition(":")
    backend: Backend = getattr(importlib.import_module(f"polybench.engines.keras.{module}"), adapter)()
    return backend
