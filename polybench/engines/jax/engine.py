"""Idiomatic JAX without a neural network library: runs the program of its emitter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import jax
import jaxlib
import numpy as np
import optax

from polybench.engines.base import Array, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.jax.device import count_allocations, cuda_devices, find_devices, set_precision
from polybench.engines.jax.emitter import emit
from polybench.engines.jax.operations import layer_operations, step_operations
from polybench.engines.jax.pipeline import Pipeline
from polybench.engines.job import EngineInfo, Job
from polybench.engines.shared.batches import Batch, as_dtype, as_input, dropout_masks
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.program import import_program
from polybench.engines.shared.python_engine import PythonEngine
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.resources import Allocations


class JaxEngine(PythonEngine):
    """Training with a single compiled step, which reuses the memory of the state (buffer donation)."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        # JAX's default is no compilation cache on disk; the user's environment may enable one.
        jax.config.update("jax_enable_compilation_cache", False)

    def probe(self) -> EngineInfo:
        versions = {module.__name__: str(module.__version__) for module in (jax, jaxlib, optax)}
        build = {"platform": " ".join(jax.devices()[0].client.platform_version.split())}
        if flags := os.environ.get("XLA_FLAGS"):
            build["xla_flags"] = flags
        return EngineInfo(versions, build, ("cpu", *(f"cuda:{i}" for i in range(len(cuda_devices())))))

    def build(self, job: Job, weights: Weights) -> None:
        self._job = job
        self._device = find_devices(job)[0]
        # Users do not synchronize a GPU after each step, so single steps cannot be timed there.
        self.timing_resolution = "step" if self._device.platform == "cpu" else "block"
        # JAX's settings may be those of an earlier program of this process; the program changes what it needs.
        set_precision(job.dtype, job.workload.precision)
        self.is_forward_pass = job.workload.is_forward_pass
        self.program = emit(job)
        self._program = import_program(self.program, self.folder)
        self._compiled = self._program.compute_logits if self.is_forward_pass else self._program.update
        self._train_step = self._program.forward_pass if self.is_forward_pass else self._program.train_step
        self._logits = jax.jit(self._infer)
        self._gradients = jax.jit(self._loss_and_gradients)
        self.set_initial_weights(weights)
        self._state = jax.block_until_ready(self._program.setup(self._initial))

    def load(self, images: Array, labels: Array) -> None:
        self._close_pipeline()
        super().load(images, labels)
        jax.block_until_ready(self._batches)

    def open_pipeline(self, source: PipelineInput) -> None:
        self._close_pipeline()
        self.timing_resolution = "block"
        self._pipeline = Pipeline(source, self._device, self._job.dtype)
        self._batches = self._pipeline.batches()

    def reset(self) -> None:
        super().reset()
        self._synchronize()

    def training_state(self) -> Weights:
        return {str(index): np.array(_data(leaf)) for index, leaf in enumerate(jax.tree.leaves(self._state))}

    def restore_training_state(self, state: Weights) -> None:
        leaves, structure = jax.tree.flatten(self._state)

        def restored(index: int, leaf: Any) -> Any:
            saved = jax.device_put(state[str(index)], leaf.sharding, may_alias=False)
            return jax.random.wrap_key_data(saved) if _is_key(leaf) else saved

        self._state = jax.tree.unflatten(structure, [restored(*one) for one in enumerate(leaves)])

    def _synchronize(self, result: object = None) -> None:
        jax.block_until_ready((self._state, result))

    def _set_step(self, step: int) -> None:
        if "step" in self._state:
            self._state["step"] = jax.device_put(np.int32(step), self._state["step"].sharding)

    def _batch(self, step: int) -> tuple[Any, ...]:
        """Return a step's batch, with the masks of dropout if the job gives them and the network has such layers."""
        batch = self._batches[step % len(self._batches)]
        if self._job.dropout != "given" or not (masks := self._masks(step, batch)):
            return batch
        return (*batch, masks)

    def _masks(self, step: int, batch: Batch) -> dict[str, Any]:
        inputs, labels = batch
        masks = dropout_masks(self._job.model, len(labels), self._job.seed, step)
        return {name: jax.device_put(mask.astype(self._job.dtype), inputs.sharding) for name, mask in masks.items()}

    def _variables(self) -> list[Any]:
        """Return what a forward pass reads: weights, and what else training changes."""
        return [self._state[name] for name in ("params", "buffers") if name in self._state]

    def _infer(self, variables: list[Any], inputs: Any) -> Any:
        output = self._program.network(*variables, inputs)
        return output[0] if len(variables) > 1 else output

    def _loss_and_gradients(self, variables: list[Any], *batch: Any) -> Any:
        has_buffers = len(variables) > 1
        loss, gradients = jax.value_and_grad(self._program.compute_loss, has_aux=has_buffers)(*variables, *batch)
        return loss[0] if has_buffers else loss, gradients

    def inactive_variant(self) -> str:
        if self._compiled._cache_size():  # compiled versions of the step
            return ""
        return explain_eager("JAX ran the step without jit", "JAX_DISABLE_JIT")

    def step_logits(self) -> Array:
        return _copy_to_numpy(self._loss.astype(self._job.dtype))

    def logits(self, images: Array) -> Array:
        batch = jax.device_put(as_input(images, self._job.dtype), next(iter(self._state["params"].values())).sharding)
        return np.asarray(self._logits(self._variables(), batch))

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients = self._gradients(self._variables(), *self._batch(step))
        weights, names = self._program.weights(self._state), self._job.model.tensor_shapes()
        return Snapshot(
            float(loss),
            {name: _copy_to_numpy(gradients[name]) for name in names if name in gradients},
            {name: weights[name] for name in names},
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _copy_to_numpy(images).astype(np.float32), _copy_to_numpy(labels).astype(np.int64)

    def drain_pipeline(self, first: int, n: int) -> float:
        start = perf_counter()
        for step in range(first, first + n):
            jax.block_until_ready(self._batches[step % len(self._batches)])
        return perf_counter() - start

    def wait_until_idle(self) -> None:
        if self._pipeline is not None:
            self._pipeline.wait_until_idle()

    def count_allocations(self, first: int, n: int) -> Allocations:
        batch = self._batch(first)
        compiled = self._compiled.lower(self._state, *batch[:1] if self.is_forward_pass else batch).compile()
        return count_allocations(partial(self.run_steps, first, n), n, compiled, self._device)

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        inputs, gradient = (jax.device_put(as_input(array, self._job.dtype), self._device) for array in (x, dy))
        calls = layer_operations(
            timed_layer, as_dtype(weights, self._job.dtype), inputs, gradient, self._job, self.folder
        )
        return make_timed_operations(calls, lambda: None)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        inputs, labels = self._batches[0]
        logits = self._logits(self._variables(), inputs)
        return make_timed_operations(step_operations(self._program, self._state, logits, labels), lambda: None)

    def device_peak_bytes(self) -> int | None:
        stats = self._device.memory_stats()  # None on the CPU
        return stats["peak_bytes_in_use"] if stats else None

    def device_bytes_in_use(self) -> int | None:
        stats = self._device.memory_stats()
        return stats["bytes_in_use"] if stats else None

    def close(self) -> None:
        self._close_pipeline()
        super().close()

    def _close_pipeline(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None


def _is_key(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _data(leaf: Any) -> Any:
    """Return the numbers of a random key, or any other array itself."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _copy_to_numpy(value: Any) -> Array:
    """Copy to NumPy's memory; `np.asarray` is a view of JAX's memory, which a step may donate."""
    return np.array(value, order="C")
