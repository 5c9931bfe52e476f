"""What the engine asks of what Keras computes with: all that Keras itself has no name for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.errors import Unavailable
from polybench.core.job import Job

if TYPE_CHECKING:
    from polybench.engines.support.keras.optimizers import Formulas


class Backend(Protocol):
    """One of them, in a process in which it is imported."""

    def versions(self) -> dict[str, str]:
        """Of its packages."""
        ...

    def build_facts(self) -> dict[str, str]:
        """What this build was made with, in short."""
        ...

    def prepare(self, job: Job) -> None:
        """Set thread pools and types of the process; nothing is inherited."""
        ...

    def formulas(self) -> Formulas:
        """The optimizers, as Keras itself has its own with this backend."""
        ...

    def gradients(self, model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
        """The function (images, labels) -> loss and gradients of `model.trainable_variables`.

        As in a training step, without its update.
        """
        ...

    def wait(self, values: list[Any]) -> None:
        """Return when these tensors have been computed."""
        ...

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        """Train, and count means of a step; empty where nothing tells."""
        ...

    def allocation_places(self, run_step: Callable[[int], object], steps: range) -> Places:
        """As `Engine.allocation_places`."""
        ...

    def unseen_natively(self) -> str:
        """As `Engine.unseen_natively`."""
        ...


class Without:
    """What a backend answers that compiles the whole step, has nothing to wait for and no counter."""

    def formulas(self) -> Formulas:
        """Compiled into one step, so it does not matter how they are written."""
        from polybench.engines.support.keras.optimizers import ONE_BY_ONE

        return ONE_BY_ONE

    def wait(self, values: list[Any]) -> None:
        """What is called returns when it is done."""

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:  # noqa: ARG002
        """Nothing tells."""
        return Allocations()

    def allocation_places(self, run_step: Callable[[int], object], steps: range) -> Places:  # noqa: ARG002
        """Nothing tells."""
        raise Unavailable(
            "nothing tells where Keras allocates with this backend",
            "polybench compare --columns native_allocated counts what it allocates in all",
        )

    def unseen_natively(self) -> str:
        """All that it has it asks the C library or the kernel for."""
        return ""


class Place(NamedTuple):
    """How to import a backend, and what installs it."""

    module: str
    product: str
    extra: str
    adapter: str


PLACES = {
    "tensorflow": Place("tensorflow", "TensorFlow", "tf", "on_tensorflow:OnTensorFlow"),
    "torch": Place("torch", "PyTorch", "torch", "on_torch:OnTorch"),
    "jax": Place("jax", "JAX", "jax", "on_jax:OnJax"),
}


def find_backend(name: str) -> Backend:
    """The adapter of a backend, which is imported."""
    module, _, kind = PLACES[name].adapter.partition(":")
    backend: Backend = getattr(importlib.import_module(f"polybench.engines.keras.{module}"), kind)()
    return backend
