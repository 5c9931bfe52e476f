"""Keras on JAX: Keras compiles the step with XLA. Environment variables set the size of XLA's thread pool."""

from __future__ import annotations

from typing import Any

import jax
import jaxlib

from polybench.engines.job import Job
from polybench.engines.keras.backend import Backend, LossAndGradients
from polybench.engines.shared.frameworks import explain_eager


class JaxBackend(Backend):
    def versions(self) -> dict[str, str]:
        return {module.__name__: str(module.__version__) for module in (jax, jaxlib)}

    def build_info(self) -> dict[str, str]:
        return {"platform": " ".join(jax.devices()[0].client.platform_version.split())}

    def configure_process(self, job: Job) -> None:
        # JAX's default is no compilation cache on disk; the user's environment may enable one.
        jax.config.update("jax_enable_compilation_cache", False)
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        jax.config.update("jax_default_matmul_precision", "float32")

    def gradients(self, model: Any, loss_function: Any) -> LossAndGradients:
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

    def explain_eager(self) -> str:
        return explain_eager("JAX ran the step without jit", "JAX_DISABLE_JIT") if jax.config.jax_disable_jit else ""

    def synchronize(self, values: list[Any]) -> None:
        jax.block_until_ready(values)
