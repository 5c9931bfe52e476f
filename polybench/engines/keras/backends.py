"""Keras backends: the operations for which Keras itself has no common API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polybench.engines.job import Job
from polybench.engines.shared import pytorch, tensorflow
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations

if TYPE_CHECKING:
    from polybench.engines.shared.keras_optimizers import OptimizerClasses

LossAndGradients = Callable[[Any, Any], tuple[Any, list[Any]]]
"""(images, labels) -> loss and gradients of `model.trainable_variables`: a training step without the update."""


class Backend:
    """Adapter for a Keras backend; defaults for one that runs synchronously and reports no allocations.

    `product` is its name for users, `extra` polybench's extra that installs it.
    """

    product: str
    extra: str

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

    def optimizer_classes(self) -> OptimizerClasses:
        """Return the per-variable classes: in a compiled step, all formulations are equivalent."""
        from polybench.engines.shared.keras_optimizers import PER_VARIABLE

        return PER_VARIABLE

    def synchronize(self, values: list[Any]) -> None:
        """Return when these tensors have been computed."""

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


class TensorFlowBackend(Backend):
    """The step is a `tf.function`."""

    product, extra = "TensorFlow", "tf"

    def versions(self) -> dict[str, str]:
        import tensorflow as tf

        return {"tensorflow": tf.__version__}

    def build_info(self) -> dict[str, str]:
        return tensorflow.build_info()

    def configure_process(self, job: Job) -> None:
        tensorflow.set_threads(job.workload.threads)

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        import tensorflow as tf

        compiled: LossAndGradients = tf.function(tensorflow.make_loss_and_gradients(model, loss_function))
        return compiled

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        return tensorflow.count_allocations(train, steps, on_gpu=False)

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        return tensorflow.find_allocation_sites(run_step, steps, on_gpu=False)

    def untraced_native_allocations(self) -> str:
        tensorflow.check_native_allocations()
        return ""


class TorchBackend(Backend):
    """The step is eager."""

    product, extra = "PyTorch", "torch"

    def versions(self) -> dict[str, str]:
        import torch

        return {"torch": str(torch.__version__)}

    def build_info(self) -> dict[str, str]:
        return pytorch.build_info()

    def configure_process(self, job: Job) -> None:
        pytorch.set_threads(job.workload.threads)

    def optimizer_classes(self) -> OptimizerClasses:
        """Return optimizers that update all variables at once, as Keras's own do on PyTorch."""
        from polybench.engines.keras.foreach_optimizers import FOREACH_OPTIMIZERS

        return FOREACH_OPTIMIZERS

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        import torch

        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            loss = loss_function(labels, model(images, training=True))
            # Unlike `backward`, `grad` stores nothing in the parameters.
            trained = [variable.value for variable in model.trainable_variables]
            return loss.detach(), list(torch.autograd.grad(loss, trained))

        return loss_and_gradients

    def count_allocations(self, train: Callable[[], object], steps: int) -> Allocations:
        import torch

        return pytorch.count_allocations(train, steps, torch.device("cpu"))

    def allocation_sites(self, run_step: Callable[[int], object], steps: range) -> AllocationProfile:
        import torch

        return pytorch.find_allocation_sites(run_step, steps, torch.device("cpu"))


class JaxBackend(Backend):
    """Keras compiles the step with XLA. Environment variables set the size of XLA's thread pool."""

    product, extra = "JAX", "jax"

    def versions(self) -> dict[str, str]:
        import jax
        import jaxlib

        return {module.__name__: str(module.__version__) for module in (jax, jaxlib)}

    def build_info(self) -> dict[str, str]:
        import jax

        return {"platform": " ".join(jax.devices()[0].client.platform_version.split())}

    def configure_process(self, job: Job) -> None:
        import jax

        # JAX's default is no compilation cache on disk; the user's environment may enable one.
        jax.config.update("jax_enable_compilation_cache", False)
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        jax.config.update("jax_default_matmul_precision", "float32")

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
        import jax

        def compute_loss(trained: Any, others: Any, images: Any, labels: Any) -> Any:
            logits, _ = model.stateless_call(trained, others, images, training=True)
            return loss_function(labels, logits)

        compiled = jax.jit(jax.value_and_grad(compute_loss))

        def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, list[Any]]:
            values = (
                [variable.value for variable in variables]
                for variables in (model.trainable_variables, model.non_trainable_variables)
            )
            loss, gradients = compiled(*values, images, labels)
            return loss, gradients

        return loss_and_gradients

    def synchronize(self, values: list[Any]) -> None:
        import jax

        jax.block_until_ready(values)


BACKENDS = {"tensorflow": TensorFlowBackend(), "torch": TorchBackend(), "jax": JaxBackend()}
"""Adapters by Keras's name, which is also the module's."""
