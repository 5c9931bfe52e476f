"""Idiomatic JAX without a neural network library: pure functions, `jax.jit`, and optax."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax

from polybench.engines.base import Array, Engine, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.jax.device import count_allocations, cuda_devices, find_placement, set_precision
from polybench.engines.jax.operations import layer_operations, step_operations
from polybench.engines.jax.pipeline import Pipeline
from polybench.engines.jax.training import State, cast_inputs, compile_functions, make_optimizer, set_learning_rate
from polybench.engines.job import EngineInfo, Job
from polybench.engines.shared.batches import Batch, BufferedBatches, as_dtype, as_input, dropout_masks, scheduled_steps
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.resources import Allocations


class JaxEngine(Engine):
    """Training with a single compiled step, which reuses the memory of the state (buffer donation)."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | BufferedBatches = []
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
        self._placement = find_placement(job)
        self._device = self._placement.device
        # Users do not synchronize a GPU after each step, so single steps cannot be timed there.
        self.timing_resolution = "step" if self._device.platform == "cpu" else "block"
        set_precision(job.dtype, job.workload.precision)
        bf16 = job.workload.precision == "bf16" and job.dtype == "float32"
        self._compute_dtype = jnp.bfloat16 if bf16 else jnp.dtype(job.dtype)

        self._optimizer = make_optimizer(job.workload.optimizer)
        state_sharding = self._placement.state if self._placement.is_distributed else None
        self._functions = compile_functions(job.model, self._optimizer, self._compute_dtype, state_sharding)
        self.is_forward_pass = job.workload.is_forward_pass
        self._compiled = self._functions.logits if self.is_forward_pass else self._functions.step
        self._masks: dict[str, Any] = {}
        self.set_initial_weights(weights)
        self.reset()

    def load(self, images: Array, labels: Array) -> None:
        self._close_pipeline()
        self._batches = [
            jax.device_put((as_input(x, self._job.dtype), y.astype(np.int32)), self._placement.batch)
            for x, y in zip(images, labels, strict=True)
        ]
        jax.block_until_ready(self._batches)

    def open_pipeline(self, source: PipelineInput) -> None:
        self._close_pipeline()
        self.timing_resolution = "block"
        self._pipeline = Pipeline(source, self._device, self._job.dtype)
        self._batches = self._pipeline.batches()

    def reset(self) -> None:
        weights, running = (
            {name: self._initial[name] for name in shapes}
            for shapes in (self._job.model.weight_shapes(), self._job.model.state_shapes())
        )
        # Created from host arrays: device_put of an array that is already on a device may not copy it.
        key = jax.random.key(self._job.seed)
        state = State(weights, running, self._optimizer.init(weights), key)
        # Copies, since each step donates the memory of its input state.
        self._state = jax.block_until_ready(
            jax.tree.map(lambda value: jax.device_put(value, self._placement.state, may_alias=False), state)
        )

    def set_initial_weights(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, self._job.dtype)

    def training_state(self) -> Weights:
        state = self._state._replace(key=jax.random.key_data(self._state.key))
        return {str(index): np.array(leaf) for index, leaf in enumerate(jax.tree.leaves(state))}

    def restore_training_state(self, state: Weights) -> None:
        structure = jax.tree.structure(self._state._replace(key=jax.random.key_data(self._state.key)))
        saved = (state[str(index)] for index in range(len(state)))
        leaves = [jax.device_put(leaf, self._placement.state, may_alias=False) for leaf in saved]
        restored = jax.tree.unflatten(structure, leaves)
        self._state = restored._replace(key=jax.random.wrap_key_data(restored.key))

    def run_steps(self, first: int, n: int) -> float:
        batches, train_step = self._batches, self._forward if self.is_forward_pass else self._functions.step
        steps = scheduled_steps(self._job.workload.optimizer, first, n, self._set_learning_rate)
        jax.block_until_ready(self._state)
        start = perf_counter()
        for step in self._with_masks(steps):
            images, labels = batches[step % len(batches)]
            self._state, loss = train_step(self._state, images, labels, self._masks)
        jax.block_until_ready((self._state, loss))
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def _forward(self, state: State, images: Any, _labels: Any, _masks: Any) -> tuple[State, Any]:
        return state, self._functions.logits(state.weights, state.running, images)

    def inactive_variant(self) -> str:
        if self._compiled._cache_size():  # compiled versions of the step
            return ""
        return explain_eager("JAX ran the step without jit", "JAX_DISABLE_JIT")

    def _set_learning_rate(self, rate: float) -> None:
        set_learning_rate(self._state.optimizer, rate)

    def loss(self) -> float:
        return float(self._loss)

    def step_logits(self) -> Array:
        return _copy_to_numpy(self._loss.astype(self._job.dtype))

    def logits(self, images: Array) -> Array:
        batch = jax.device_put(as_input(images, self._job.dtype), self._placement.state)
        return np.asarray(self._functions.logits(self._state.weights, self._state.running, batch))

    def snapshot(self, step: int) -> Snapshot:
        (step,) = self._with_masks([step])
        batch = self._batches[step % len(self._batches)]
        loss, gradients = self._functions.gradients(self._state, *batch, self._masks)
        weights = {**self._state.weights, **self._state.running}
        names = self._job.model.tensor_shapes()
        return Snapshot(
            float(loss),
            {name: _copy_to_numpy(gradients[name]) for name in names if name in gradients},
            {name: _copy_to_numpy(weights[name]) for name in names},
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _copy_to_numpy(images).astype(np.float32), _copy_to_numpy(labels).astype(np.int64)

    def drain_pipeline(self, first: int, n: int) -> float:
        start = perf_counter()
        for step in range(first, first + n):
            jax.block_until_ready(self._batches[step % len(self._batches)])
        return perf_counter() - start

    def data_wait_seconds(self) -> float | None:
        return self._batches.wait_seconds if isinstance(self._batches, BufferedBatches) else None

    def wait_until_idle(self) -> None:
        if self._pipeline is not None:
            self._pipeline.wait_until_idle()

    def count_allocations(self, first: int, n: int) -> Allocations:
        images, labels = self._batches[first % len(self._batches)]
        state = self._state
        arguments = (
            (state.weights, state.running, images) if self.is_forward_pass else (state, images, labels, self._masks)
        )
        compiled = self._compiled.lower(*arguments).compile()
        return count_allocations(partial(self.run_steps, first, n), n, compiled, self._device)

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        arrays = (jax.device_put(as_input(array, self._job.dtype), self._device) for array in (x, dy))
        inputs, gradient = (cast_inputs(array, self._compute_dtype) for array in arrays)
        calls = layer_operations(
            timed_layer,
            as_dtype(weights, self._job.dtype),
            inputs,
            gradient,
            self._compute_dtype,
            is_forward_pass=self.is_forward_pass,
        )
        return make_timed_operations(calls, lambda: None)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        images, labels = self._batches[0]
        weights, running, state, _ = self._state
        logits = self._functions.logits(weights, running, images)
        calls = step_operations(logits, labels, self._optimizer, weights, state, self._job.model.label_smoothing)
        return make_timed_operations(calls, lambda: None)

    def device_peak_bytes(self) -> int | None:
        stats = self._device.memory_stats()  # None on the CPU
        return stats["peak_bytes_in_use"] if stats else None

    def close(self) -> None:
        self._close_pipeline()
        self._batches = []

    def _close_pipeline(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """Yield the same steps; if the job fixes the dropout masks, set each step's masks first."""
        return map(self._set_masks, steps) if self._job.dropout == "given" else steps

    def _set_masks(self, step: int) -> int:
        batch_size = len(self._batches[step % len(self._batches)][1])
        masks = dropout_masks(self._job.model, batch_size, self._job.seed, step)
        self._masks = {
            name: jax.device_put(mask.astype(self._job.dtype), self._placement.batch) for name, mask in masks.items()
        }
        return step


def _copy_to_numpy(value: Any) -> Array:
    """Copy to NumPy's memory; `np.asarray` is a view of JAX's memory, which a step may donate."""
    return np.array(value, order="C")
