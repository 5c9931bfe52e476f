"""JAX as its users write it without a library for networks: pure functions, `jax.jit`, and optax."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np

from polybench.core.document.layers import Part
from polybench.core.document.resources import Allocations
from polybench.core.job import EXACT, Conventions, Job, Probe
from polybench.core.pieces import Piece
from polybench.engines.base import Array, Engine, Replayed, Snapshot, Stream, Weights
from polybench.engines.jax.allocations import allocations
from polybench.engines.jax.device import cuda_devices, set_precision
from polybench.engines.jax.pipeline import Pipeline
from polybench.engines.jax.replicas import placement
from polybench.engines.support.arrays import as_dtype, as_input
from polybench.engines.support.drawn_batches import Batch, DrawnBatches
from polybench.engines.support.dropout_masks import dropout_masks
from polybench.engines.support.frameworks import import_framework
from polybench.engines.support.rates import at_rates
from polybench.engines.support.replay import timed


class JaxEngine(Engine):
    """The whole step is compiled, and given the memory of the state that it replaces."""

    sample_kind: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | DrawnBatches = []
        self._pipeline: Pipeline | None = None

    def load_framework(self) -> None:
        import_framework("jax", "JAX", "jax")
        import_framework("optax", "optax", "jax")
        import jax

        # By itself JAX keeps no compiled code on disk; the user's environment may say otherwise.
        jax.config.update("jax_enable_compilation_cache", False)

    def probe(self) -> Probe:
        import jax
        import jaxlib
        import optax

        versions = {module.__name__: str(module.__version__) for module in (jax, jaxlib, optax)}
        build = {"platform": " ".join(jax.devices()[0].client.platform_version.split())}
        if flags := os.environ.get("XLA_FLAGS"):
            build["xla_flags"] = flags
        return Probe(versions, build, ("cpu", *(f"cuda:{i}" for i in range(len(cuda_devices())))))

    def build(self, job: Job, weights: Weights) -> None:
        import jax.numpy as jnp

        from polybench.engines.jax import optimizers
        from polybench.engines.jax.training_step import compiled

        self._job = job
        self._placement = placement(job)
        self._device = self._placement.device
        # Nobody synchronizes a GPU after each step, so there a single step has no time of its own.
        self.sample_kind = "step" if self._device.platform == "cpu" else "block"
        set_precision(job.dtype, job.workload.precision)
        bf16 = job.workload.precision == "bf16" and job.dtype == "float32"

        self._optimizer = optimizers.make(job.workload.optimizer)
        self._set_rate = optimizers.set_rate
        dtype = jnp.bfloat16 if bf16 else job.dtype
        everywhere = self._placement.state if self._placement.several else None
        self._functions = compiled(job.model, self._optimizer, dtype, everywhere)
        self._masks: dict[str, Any] = {}
        self.start_from(weights)
        self.reset()

    def conventions(self) -> Conventions:
        return EXACT

    def load(self, images: Array, labels: Array) -> None:
        import jax

        self._end_pipeline()
        self._batches = [
            jax.device_put((as_input(x, self._job.dtype), y.astype(np.int32)), self._placement.batch)
            for x, y in zip(images, labels, strict=True)
        ]
        jax.block_until_ready(self._batches)

    def open_stream(self, stream: Stream) -> None:
        self._end_pipeline()
        self.sample_kind = "block"
        self._pipeline = Pipeline(stream, self._device, self._job.dtype)
        self._batches = self._pipeline.draw()

    def reset(self) -> None:
        import jax

        from polybench.engines.jax.training_step import State

        weights, running = (
            {name: self._initial[name] for name in shapes}
            for shapes in (self._job.model.weight_shapes(), self._job.model.state_shapes())
        )
        # Made anew: of what is on a device already, a copy to several may be no copy.
        key = jax.random.key(self._job.seed)
        state = State(weights, running, self._optimizer.init(weights), key)
        # Copies, since a step uses up the memory of the state that it is given.
        self._state = jax.block_until_ready(
            jax.tree.map(lambda value: jax.device_put(value, self._placement.state, may_alias=False), state)
        )

    def start_from(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, self._job.dtype)

    def training_state(self) -> Weights:
        import jax

        bare = self._state._replace(key=jax.random.key_data(self._state.key))
        return {str(index): np.array(leaf) for index, leaf in enumerate(jax.tree.leaves(bare))}

    def go_on_from(self, state: Weights) -> None:
        import jax

        bare = self._state._replace(key=jax.random.key_data(self._state.key))
        kept = (state[str(index)] for index in range(len(state)))
        leaves = [jax.device_put(leaf, self._placement.state, may_alias=False) for leaf in kept]
        found = jax.tree.unflatten(jax.tree.structure(bare), leaves)
        self._state = found._replace(key=jax.random.wrap_key_data(found.key))

    def run_steps(self, first: int, n: int) -> float:
        import jax

        batches, train_step = self._batches, self._functions.step
        steps = at_rates(self._job.workload.optimizer, first, n, self._at_rate)
        jax.block_until_ready(self._state)
        start = perf_counter()
        for step in self._with_masks(steps):
            images, labels = batches[step % len(batches)]
            self._state, loss = train_step(self._state, images, labels, self._masks)
        jax.block_until_ready((self._state, loss))
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def _at_rate(self, rate: float) -> None:
        self._set_rate(self._state.optimizer, rate)

    def loss(self) -> float:
        return float(self._loss)

    def correct(self, images: Array, labels: Array) -> int:
        import jax

        batch = jax.device_put(as_input(images, self._job.dtype), self._placement.state)
        logits = self._functions.logits(self._state.weights, self._state.running, batch)
        return int((np.asarray(logits).argmax(axis=1) == labels).sum())

    def snapshot(self, step: int) -> Snapshot:
        (step,) = self._with_masks([step])
        batch = self._batches[step % len(self._batches)]
        loss, gradients = self._functions.gradients(self._state, *batch, self._masks)
        weights = {**self._state.weights, **self._state.running}
        names = self._job.model.tensor_shapes()
        return Snapshot(
            float(loss),
            {name: _copied(gradients[name]) for name in names if name in gradients},
            {name: _copied(weights[name]) for name in names},
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _copied(images).astype(np.float32), _copied(labels).astype(np.int64)

    def draw_batches(self, first: int, n: int) -> float:
        import jax

        start = perf_counter()
        for step in range(first, first + n):
            jax.block_until_ready(self._batches[step % len(self._batches)])
        return perf_counter() - start

    def waited(self) -> float | None:
        return self._batches.waited if isinstance(self._batches, DrawnBatches) else None

    def wait_until_idle(self) -> None:
        if self._pipeline is not None:
            self._pipeline.wait_until_idle()

    def count_allocations(self, first: int, n: int) -> Allocations:
        batch = self._batches[first % len(self._batches)]
        compiled = self._functions.step.lower(self._state, *batch, self._masks).compile()
        return allocations(partial(self.run_steps, first, n), n, compiled, self._device)

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
        import jax

        from polybench.engines.jax.replay import calls

        arrays = (as_input(array, self._job.dtype) for array in (x, dy))
        found = calls(piece, as_dtype(weights, self._job.dtype), *jax.device_put(tuple(arrays), self._device))
        return timed(found, lambda: None)

    def replay_step(self) -> Mapping[Part, Replayed]:
        from polybench.engines.jax.replay import step_calls

        images, labels = self._batches[0]
        weights, running, state, _ = self._state
        logits = self._functions.logits(weights, running, images)
        return timed(step_calls(logits, labels, self._optimizer, weights, state), lambda: None)

    def device_peak_bytes(self) -> int | None:
        stats = self._device.memory_stats()  # None on the CPU
        return stats["peak_bytes_in_use"] if stats else None

    def close(self) -> None:
        self._end_pipeline()
        self._batches = []

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """The same steps; where dropout masks are given, each one's are put in place before it."""
        return map(self._give_masks, steps) if self._job.dropout == "given" else steps

    def _give_masks(self, step: int) -> int:
        import jax

        batch_size = len(self._batches[step % len(self._batches)][1])
        masks = dropout_masks(self._job.model, batch_size, self._job.seed, step)
        self._masks = {
            name: jax.device_put(mask.astype(self._job.dtype), self._placement.batch)
            for name, mask in masks.items()
        }
        return step


def _copied(value: Any) -> Array:
    """In NumPy's memory; what JAX gives is a view of its own, which a step may use up."""
    return np.array(value, order="C")
