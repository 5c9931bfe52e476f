"""Simulated engine: computed step times and losses.

It serves to test everything around an engine, and to try polybench without a framework.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from polybench.engines.base import Array, Engine, Evaluation, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.job import EngineInfo, Job, Rank
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.measurements import AllocationProfile, AllocationSite
from polybench.schema.resources import Allocation, Allocations, GcStats

STEP_SECONDS = 0.010
# Real processes of one program vary more than the steps of one process. These relative deviations are upper
# bounds, so that tests can rely on ratios.
PROCESS_NOISE = 0.02
STEP_NOISE = 0.005
DATA_WAIT_SECONDS = 0.002
PIPELINE_BATCH_SECONDS = 0.005
STEPS_TO_HALF_CORRECT = 10
GC_SECONDS = 0.001
STEPS_PER_FULL_GC = 10
ALLOCATION_SITES = AllocationProfile(
    "fake", "simulated allocations", [AllocationSite("fake_layer", 3 << 20, 12, 2, 1 << 20)]
)
FORWARD_FRACTION = 0.3  # of a training step
ALLREDUCE_FRACTION = 0.1  # of a data-parallel step
LAYERS_FRACTION = 0.8  # of a step, shared equally by the operations of all layers
STEP_OPERATIONS: dict[Operation, float] = {"loss": 0.0004, "update": 0.0003, "call": 0.0001}
ALLOCATIONS = Allocation(12, 3 << 20, "fake", "simulated allocations")


class FakeEngine(Engine):
    """Simulates training; a step of the variant `slow` takes twice as long."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._random = random.Random(os.getpid())
        self._process_factor = 1 + PROCESS_NOISE * self._random.uniform(-1, 1)
        self._is_slow = False
        self._step_seconds = STEP_SECONDS
        self._steps = 0
        self._all_steps = 0
        self._uses_pipeline = False

    def join_process_group(self, rank: Rank) -> None:
        pass

    def probe(self) -> EngineInfo:
        return EngineInfo({"fake": "1"}, {}, ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:  # noqa: ARG002
        self._is_slow, self.is_forward_pass = "slow" in job.variants, job.workload.is_forward_pass
        self._step_seconds = self.training_seconds(job) * (FORWARD_FRACTION if self.is_forward_pass else 1)
        timed_layers = split_layers(job.model)
        operations = sum(1 + len(layer.gradients()) + layer.has_relu for layer in timed_layers)
        self._operation_seconds = LAYERS_FRACTION * self._step_seconds / operations

    def training_seconds(self, job: Job) -> float:  # noqa: ARG002
        """Return the time of a training step."""
        return STEP_SECONDS

    def load(self, images: Array, labels: Array) -> None:  # noqa: ARG002
        self._uses_pipeline = False

    def open_pipeline(self, source: PipelineInput) -> None:  # noqa: ARG002
        self._uses_pipeline = True
        self.timing_resolution = "block"

    def reset(self) -> None:
        self._steps = 0

    def set_initial_weights(self, weights: Weights) -> None:
        pass

    def training_state(self) -> Weights:
        return {"steps": np.array(self._steps)}

    def restore_training_state(self, state: Weights) -> None:
        self._steps = int(state["steps"])

    def run_steps(self, first: int, n: int) -> float:  # noqa: ARG002
        self._steps += n
        self._all_steps += n
        data_wait = DATA_WAIT_SECONDS if self._uses_pipeline else 0.0
        return self._simulate(self._step_seconds + data_wait, n)

    def run_steps_without_allreduce(self, first: int, n: int) -> float:
        return (1 - ALLREDUCE_FRACTION) * self.run_steps(first, n)

    def _simulate(self, seconds: float, n: int) -> float:
        """Return the seconds of n executions of `seconds` each, with noise."""
        factor = self._process_factor * (2 if self._is_slow else 1)
        return sum(seconds * factor * (1 + STEP_NOISE * self._random.uniform(-1, 1)) for _ in range(n))

    def loss(self) -> float:
        """Loss that falls from log(10), random guessing among ten classes, to half of it."""
        return math.log(10) * (0.5 + 0.5 * math.exp(-(self._steps - 1) / 100))

    def step_logits(self) -> Array:
        return np.array([[self.loss()]])

    def logits(self, images: Array) -> Array:
        raise NotImplementedError("the fake engine computes no logits")

    def evaluate(self, images: Array, labels: Array) -> Evaluation:  # noqa: ARG002
        """Correct predictions grow with every step, up to all images; the loss falls as in training."""
        correct = round(labels.size * self._steps / (self._steps + STEPS_TO_HALF_CORRECT))
        return Evaluation(correct, labels.size * self.loss())

    def snapshot(self, step: int) -> Snapshot:
        raise NotImplementedError("the fake engine computes no gradients")

    def drain_pipeline(self, first: int, n: int) -> float:  # noqa: ARG002
        return n * PIPELINE_BATCH_SECONDS

    def data_wait_seconds(self) -> float | None:
        return self._all_steps * DATA_WAIT_SECONDS if self._uses_pipeline else None

    def gc_stats(self) -> GcStats:
        return GcStats(self._all_steps * GC_SECONDS, self._all_steps // STEPS_PER_FULL_GC)

    def count_allocations(self, first: int, n: int) -> Allocations:
        self.run_steps(first, n)
        return Allocations(host=ALLOCATIONS)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        self.run_steps(first, n)
        return ALLOCATION_SITES

    def untraced_native_allocations(self) -> str:
        return ""

    def build_layer_operations(
        self,
        timed_layer: TimedLayer,
        weights: Weights,  # noqa: ARG002
        x: Array,  # noqa: ARG002
        dy: Array,  # noqa: ARG002
    ) -> Mapping[Operation, TimedOperation]:
        seconds = self.layer_seconds(timed_layer)
        if self.is_forward_pass:
            seconds = {"forward": seconds["forward"]}
        return {operation: TimedOperation(self._timer(value)) for operation, value in seconds.items()}

    def layer_seconds(self, timed_layer: TimedLayer) -> dict[Operation, float]:
        """Return the time of each operation of a layer in a training step; that of the ReLU is the last one."""
        gradients = {one.operation: 1 + one.has_input_gradient for one in timed_layer.gradients()}
        parts: dict[Operation, int] = {
            "forward": 1,
            **gradients,
            **({"relu gradient": 1} if timed_layer.has_relu else {}),
        }
        return {operation: part * self._operation_seconds for operation, part in parts.items()}

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        return {operation: TimedOperation(self._timer(value)) for operation, value in STEP_OPERATIONS.items()}

    def _timer(self, seconds: float) -> Callable[[int], float]:
        return lambda n: self._simulate(seconds, n)
