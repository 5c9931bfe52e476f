"""Engine protocol: the operations that a framework must implement to be measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.engines.job import NO_DEVIATIONS, EngineInfo, Job, NumericalConventions, Rank
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations, GcStats

Array = NDArray[Any]


Weights = Mapping[str, Array]
"""Arrays in the canonical layout by name (`layer_name.weight`); see `networks.model.Model.tensor_shapes`."""


class PipelineInput(NamedTuple):
    """Data set and batch order for an input pipeline; all arrays are read-only."""

    images: Array  # (N, channels, height, width) uint8, memory-mapped
    labels: Array  # (N,) int64
    order: Array  # (steps, batch) int64, the image indices of each batch
    # (steps, batch, 3) int8: flip (left-right, 0 or 1), dy and dx, with |dy|, |dx| <= MAX_CROP_OFFSET. Pixel (y, x) is
    # the flipped image's pixel (y + dy, x + dx), or 0 outside the image. None: no augmentation.
    augmentations: Array | None
    workers: int  # prepare batches; with 0, the training thread does


class Snapshot(NamedTuple):
    """Loss and gradients of one batch at the current weights, and these weights, in the canonical layout.

    `gradients` has the tensors of `model.weight_shapes()`, `weights` those of `model.tensor_shapes()`.
    """

    loss: float
    gradients: Weights
    weights: Weights


class Evaluation(NamedTuple):
    """Sums over all predictions: those whose largest logit is that of the label, and the cross-entropies.

    The cross-entropy is computed from the logits in float64, with one formula for all engines, without label smoothing.
    """

    correct: int
    loss: float


class LayerTensors(NamedTuple):
    """Tensors of one layer in a training step, in the canonical layout; d is the gradient of the loss."""

    x: Array
    dy: Array
    y: Array
    dx: Array
    gradients: Weights  # of the layer's weights, by tensor (`weight`, `bias`)


class TimedOperation(NamedTuple):
    """Operation of a layer or of the training step that can be timed separately.

    `run` executes it n times and returns the total seconds; the device is synchronized before the clock stops.
    `overhead` does so with an empty operation, if whole steps do not have this call overhead. It is subtracted.
    """

    run: Callable[[int], float]
    overhead: Callable[[int], float] | None = None


class Engine(ABC):
    """Framework in a process. The methods are called in the order in which they are defined.

    The factory of `EngineSpec` imports the framework and makes the engine, and is timed.
    """

    timing_resolution: Literal["step", "block"]
    """"block" if steps can only be timed together; a step time is then the mean of a timing block."""

    is_forward_pass: bool = False
    """True if `build` got a job of the forward pass: `run_steps` computes logits, and there is no loss."""

    has_call_overhead: bool = False
    """True if users pay an overhead for each call of `run_steps`; an epoch is then a single call."""

    program: str = ""
    """Text of the program whose training step `run_steps` runs, as `build` wrote it; "" for an engine without one."""

    folder: Path | None = None
    """The study's folder for temporary files, where the engine writes its program; None if nobody has chosen one."""

    def join_process_group(self, rank: Rank) -> None:
        """Train data-parallel with other processes: from `build` on, `load` gets this rank's shards.

        Gradients and losses are means over all ranks. All ranks call `reset`, `run_steps`, `loss` and `snapshot`
        at the same time.
        """
        raise NotImplementedError

    @abstractmethod
    def probe(self) -> EngineInfo:
        """Return versions, build details and visible devices."""

    @abstractmethod
    def build(self, job: Job, weights: Weights) -> None:
        """Build model, optimizer and training step with these initial weights.

        Raises EngineUnavailable if the device does not exist, or the engine does not support the job.
        """

    def conventions(self) -> NumericalConventions:
        """Return the declared deviations of the model that `build` made; by default none."""
        return NO_DEVIATIONS

    @abstractmethod
    def load(self, images: Array, labels: Array) -> None:
        """Copy batches to the device in the engine's own layout.

        Images are (steps, batch, *input_shape), float32 in 0..1, or int32 tokens, in C order and read-only. Labels
        are (steps, batch, *label_shape), int64.
        """

    def open_pipeline(self, source: PipelineInput) -> None:  # noqa: ARG002
        """Read batches from the framework's own input pipeline during training; called instead of `load`.

        A batch is float32 pixels in 0..1 (value / 255) of augmented images. Reading batches in order must not
        restart the pipeline; any other access may. `timing_resolution` becomes "block", since the time of a single
        step depends on how far the pipeline has prefetched.
        """
        raise EngineUnavailable("this engine has no input pipeline", "use --input preload")

    @abstractmethod
    def reset(self) -> None:
        """Restore the initial weights and a zero optimizer state; never timed."""

    @abstractmethod
    def set_initial_weights(self, weights: Weights) -> None:
        """Replace the weights that `reset` restores; canonical layout, as in `build`."""

    def training_state(self) -> Weights:
        """Copies of everything except the batch that the next step depends on, with any names, shapes and types.

        `restore_training_state` takes them for the same job in another process with the same versions. If the
        result is empty, this engine cannot resume a training in another process.
        """
        return {}

    def restore_training_state(self, state: Weights) -> None:
        """Restore a result of `training_state`, after `reset` and at least one step in this process."""
        raise NotImplementedError

    @abstractmethod
    def run_steps(self, first: int, n: int) -> float:
        """Train on batches first, first + 1, ... (modulo the loaded steps) with the scheduled learning rates.

        For a forward pass, only compute the logits, in inference mode as in `logits`; no state changes.

        Return the wall-clock seconds of the n steps; the device is synchronized before the clock stops.
        """

    def step_logits(self) -> Array:
        """Return the logits of the last step of a forward pass, in a float dtype and the shape of `logits`."""
        raise NotImplementedError

    def inactive_variant(self) -> str:
        """Return why the steps so far ran without a variant of the job, and the fix; "" if all were in effect.

        Frameworks turn off compilation without an error, for example through an environment variable.
        """
        return ""

    def run_steps_without_allreduce(self, first: int, n: int) -> float | None:  # noqa: ARG002
        """Train like `run_steps` without exchanging gradients; None if the exchange cannot be omitted."""
        return None

    @abstractmethod
    def loss(self) -> float:
        """Return the loss that the last step of `run_steps` computed before its update."""

    @abstractmethod
    def logits(self, images: Array) -> Array:
        """Return the logits (images, *label_shape, classes), in a float dtype, of any number of images as in `load`.

        Inference mode: no dropout, batch norm with its running statistics. No state changes.
        """

    def evaluate(self, images: Array, labels: Array) -> Evaluation:
        """Evaluate the current weights on images as in `logits` and their labels (images, *label_shape)."""
        logits = self.logits(images).astype(np.float64)
        of_labels = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        with np.errstate(invalid="ignore"):  # logits may be infinite
            losses = np.logaddexp.reduce(logits, axis=-1) - of_labels
        return Evaluation(int((logits.argmax(axis=-1) == labels).sum()), float(losses.sum()))

    @abstractmethod
    def snapshot(self, step: int) -> Snapshot:
        """Compute loss and gradients of step `step` at the current weights, without changing any state."""

    def batch(self, step: int) -> tuple[Array, Array]:
        """Return the pipeline's batch of step `step` in the canonical layout: float32, int64."""
        raise NotImplementedError

    def drain_pipeline(self, first: int, n: int) -> float:
        """Read n batches from the pipeline to the device without training, and return the seconds."""
        raise NotImplementedError

    def data_wait_seconds(self) -> float | None:
        """Total seconds that training has waited for its pipeline; None without a pipeline, or if unknown.

        It is read before and after timed steps, so it must be very cheap.
        """
        return None

    def wait_until_idle(self) -> None:  # noqa: B027 - optional
        """Return when the engine has no background work left, because other engines are measured next."""

    def gc_stats(self) -> GcStats | None:
        """Totals of the garbage collector of the engine's own language; None if it has none.

        It is read before and after timed steps, so it must be very cheap.
        """
        return None

    def run_gc(self) -> None:  # noqa: B027 - optional
        """Run the garbage collector of the engine's own language before a measurement."""

    def count_allocations(self, first: int, n: int) -> Allocations:  # noqa: ARG002
        """Train as `run_steps` does, and count allocations: means per step. Never timed.

        A field is empty if no source can count it. Each number has its source and coverage.
        """
        return Allocations()

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:  # noqa: ARG002
        """Train as `run_steps` does, and find which operators or functions allocate. Never timed."""
        raise EngineUnavailable(
            "this engine has no source of allocation sites",
            "polybench compare --columns native_bytes_per_step counts the total",
        )

    def untraced_native_allocations(self) -> str:
        """Describe small allocations that pools serve without calling the C library or the kernel; "" if none.

        Raises EngineUnavailable if a pool hides tensors, so that no count is better than this one.
        """
        return ""

    def statistics_after(self, step: int) -> Weights:
        """Compute the running statistics that step `step` would leave; reference engine only."""
        raise NotImplementedError

    def layer_tensors(self, step: int) -> list[LayerTensors]:
        """Compute every layer's tensors for batch `step`, without changing any state; reference engine only.

        In the order of `model.activations()`. A residual block stands for the sum at its end, as x + x with x the
        output of its body.
        """
        raise NotImplementedError

    def build_layer_operations(
        self,
        timed_layer: TimedLayer,  # noqa: ARG002
        weights: Weights,  # noqa: ARG002
        x: Array,  # noqa: ARG002
        dy: Array,  # noqa: ARG002
    ) -> Mapping[Operation, TimedOperation]:
        """Build one layer, of the job's model or of any other, as `build` builds it, to time its operations.

        Gradients are computed as in a training step, from the values that the forward pass saved.

        Args:
            timed_layer: the layer.
            weights: all tensors of `timed_layer.tensor_shapes()`, canonical layout.
            x: (batch, *timed_layer.input_shape), float32, or int32 tokens.
            dy: gradient of the loss with respect to the output, after the ReLU; float32.

        Returns:
            "forward", the operations of `timed_layer.gradients()`, and "relu gradient" if the layer has a ReLU.
            A gradient with respect to input and weights computes both, as one call of the framework does.
            For a forward pass only "forward", in inference mode.
        """
        raise EngineUnavailable("this engine cannot run a single layer", "only its whole step can be timed")

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        """Build the operations outside of layers, for training: "loss", "update", and "call", which is empty."""
        return {}

    def device_peak_bytes(self) -> int | None:
        """Peak bytes in use in this engine's GPU allocator; None on the CPU."""
        return None

    def heap_bytes_in_use(self) -> int | None:
        """Bytes in use now in the heap of the engine's own language; None if that heap is malloc's."""
        return None

    def device_bytes_in_use(self) -> int | None:
        """Bytes in use now in this engine's GPU allocator; None on the CPU, or if unknown."""
        return None

    def float64_tensors(self) -> list[str]:
        """Return the names of tensors of float64 in a training in float32, as far as this engine sees them."""
        return []

    def startup_detail(self) -> dict[str, float]:
        """Return startup phases in seconds, and `cached_code` (1) if code compiled earlier was reused."""
        return {}

    def close(self) -> None:  # noqa: B027 - optional
        """Release batches, worker processes and threads."""
