"""Times the operations of single layers, and writes the tensors that they need."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polybench.engines.base import Engine, TimedOperation, Weights
from polybench.engines.job import Job
from polybench.engines.shared.batches import as_input
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.planning import schedule
from polybench.protocol.calls import OperationTime

_BACKWARD_OPERATIONS: tuple[Operation, ...] = ("relu gradient", "weight gradient", "input gradient")

_GROUP_BYTES = 1 << 29
"""Inputs and outputs of the layers of a group. With `mobile-cifar`, batch 128, a worker of PyTorch has 2.9 GiB, and 6.4
with all layers at once."""


class BuiltLayer(NamedTuple):
    """A layer of the network, with its number there, built alone."""

    number: int
    layer: TimedLayer
    operations: Mapping[Operation, TimedOperation]


def write_layer_tensors(engine: Engine, job: Job, folder: Path) -> None:
    """Write the tensors of each timed layer in the first batch, from the reference, built and loaded for the job.

    The files in `folder`, `0.npz`, `1.npz`, ..., are in canonical layout, float32 or int32 tokens. Engines get the
    layer's input `x` and the gradient `dy` of its output. Scripts also use `z` and `dz`, the output before ReLU and its
    gradient, and `dx`, `gradient.weight` and the like.
    """
    tensors = iter(engine.layer_tensors(0))
    for index, timed_layer in enumerate(split_layers(job.model)):
        layer_tensors = [next(tensors) for _ in timed_layer.layers]
        layer, last = layer_tensors[0], layer_tensors[-1]
        tensors_by_name = {"x": layer.x, "z": layer.y, "dy": last.dy, "dz": layer.dy, "dx": layer.dx}
        tensors_by_name |= {f"gradient.{name}": value for name, value in layer.gradients.items()}
        arrays: dict[str, Any] = {name: as_input(value, "float32") for name, value in tensors_by_name.items()}
        np.savez(folder / f"{index}.npz", **arrays)


class _ScheduledOperation(NamedTuple):
    """A timed operation in the order of a step; `layers` is empty for an operation of the whole step.

    It also computes `contained_operation`, another operation of the layer, whose time is subtracted.
    """

    layers: tuple[int, ...]
    operation: Operation
    timed: TimedOperation
    contained_operation: Operation | None = None


class OperationTimer:
    """Times the operations of layers, and of the whole step.

    Each pass runs the operations in the order of a step, so the state of the caches resembles that in a step.
    An operation never runs twice in succession on a CPU. The layers of a large network form groups. Only one group is
    built at a time, since the arrays of all of them can be larger than the memory; a single group stays built.
    """

    def __init__(
        self,
        engine: Engine,
        job: Job,
        build: Callable[[int], BuiltLayer],
        groups: Sequence[Sequence[int]],
        step_operations: Mapping[Operation, TimedOperation],
    ) -> None:
        """Build each group once, with `build`, which returns the layer of this number."""
        self._engine, self._build_layer, self._groups, self._step_operations = engine, build, groups, step_operations
        # Timing synchronizes a GPU before and after, which takes longer than most operations.
        self._batches_repeats = job.device != "cpu"
        self._operations: list[_ScheduledOperation] = []
        for group in groups:
            self._build(group)
        self._release()

    def time(self, repeats: int) -> list[OperationTime]:
        """Time every operation `repeats` times."""
        if len(self._groups) == 1:
            return self._time_group(repeats)
        times = []
        for group in self._groups:
            self._build(group)
            times += self._time_group(repeats)
        self._release()
        return times

    def _build(self, group: Sequence[int]) -> None:
        self._release()
        # The operations of the whole step follow the network's last layers.
        step_operations = self._step_operations if group is self._groups[-1] else {}
        self._operations = list(_schedule([self._build_layer(number) for number in group], step_operations))
        self._run_pass(1)  # compiles and allocates
        self._engine.run_gc()

    def _release(self) -> None:
        if len(self._groups) > 1:
            self._operations = []
            gc.collect()
            self._engine.run_gc()

    def _time_group(self, repeats: int) -> list[OperationTime]:
        """Time the operations that are built.

        Return the mean over repeats of its seconds without garbage collection, minus the mean overhead of an empty
        call, and the mean of garbage collection. If an operation contains another one, the contained time is
        subtracted, so the two add up.
        """
        gc.collect()
        passes = [self._run_pass(repeats)] if self._batches_repeats else [self._run_pass(1) for _ in range(repeats)]
        # Collects this garbage now, not in the whole steps, which are measured next.
        self._engine.run_gc()
        call_overhead = {
            run: statistics.fmean(one_pass.call_overhead[run] for one_pass in passes) for run in passes[0].call_overhead
        }
        operation_times = [
            OperationTime(
                one.layers,
                one.operation,
                statistics.fmean(one_pass.seconds[number] for one_pass in passes)
                - (call_overhead[one.timed.overhead] if one.timed.overhead else 0.0),
                _mean([one_pass.gc_seconds[number] for one_pass in passes]),
            )
            for number, one in enumerate(self._operations)
        ]
        time_by_operation = {(one.layers, one.operation): one for one in operation_times}
        return [
            _subtract(
                time_by_operation[one.layers, one.operation],
                time_by_operation[one.layers, one.contained_operation] if one.contained_operation else None,
            )
            for one in self._operations
        ]

    def _run_pass(self, n: int) -> _Pass:
        """Run every operation n times in succession, and each empty call after the first operation that uses
        it.

        At the beginning of a pass an empty call would take longer, because of whatever ran before.
        """
        call_overhead: dict[Callable[[int], float], float] = {}
        measured = []
        for operation in self._operations:
            run, run_empty = operation.timed
            measured.append(self._measure(run, n))
            if run_empty and run_empty not in call_overhead:
                call_overhead[run_empty] = run_empty(n) / n
        return _Pass(call_overhead, *map(list, zip(*measured, strict=True)))

    def _measure(self, run: Callable[[int], float], n: int) -> tuple[float, float | None]:
        before = self._engine.gc_stats()
        seconds = run(n)
        after = self._engine.gc_stats()
        if before is None or after is None:
            return seconds / n, None
        gc_seconds = after.seconds - before.seconds
        return (seconds - gc_seconds) / n, gc_seconds / n


class _Pass(NamedTuple):
    """Seconds of each empty call, of each operation, and of garbage collection in each operation."""

    call_overhead: dict[Callable[[int], float], float]
    seconds: list[float]
    gc_seconds: list[float | None]


def build_network_operations(engine: Engine, job: Job, weights: Weights, folder: Path) -> OperationTimer:
    """Build the operations of the job's network and of its training step.

    `folder` has the files of `write_layer_tensors`; a larger batch repeats their images.
    """
    batch_size = job.workload.batch_size
    layers = dict(enumerate(split_layers(job.model)))

    def build(number: int) -> BuiltLayer:
        with np.load(folder / f"{number}.npz") as file:
            # `resize` repeats the images to fill the batch.
            x, dy = (np.resize(file[name], (batch_size, *file[name].shape[1:])) for name in ("x", "dy"))
        layer_weights = {name: weights[name] for name in layers[number].tensor_shapes()}
        return BuiltLayer(number, layers[number], engine.build_layer_operations(layers[number], layer_weights, x, dy))

    step_operations = {} if engine.is_forward_pass else engine.build_step_operations()
    groups = schedule.groups({number: batch_size * _bytes(layer) for number, layer in layers.items()}, _GROUP_BYTES)
    return OperationTimer(engine, job, build, groups, step_operations)


def _bytes(layer: TimedLayer) -> int:
    """Return the bytes of the input and the output for one image, in float32."""
    return 4 * (math.prod(layer.input_shape) + math.prod(layer.output_shape()))


def build_standalone_operations(
    engine: Engine, job: Job, requested: Iterable[tuple[TimedLayer, int]]
) -> OperationTimer:
    """Build the operations of layers and batch sizes of their own, with normally distributed tensors."""
    random = np.random.default_rng(job.seed)
    layers = []
    for index, (layer, batch_size) in enumerate(requested):
        shapes = layer.input_shape, layer.output_shape()
        x, dy = (random.standard_normal((batch_size, *shape), np.float32) for shape in shapes)
        weights = {name: random.standard_normal(shape, np.float32) for name, shape in layer.tensor_shapes().items()}
        layers.append(BuiltLayer(index, layer, engine.build_layer_operations(layer, weights, x, dy)))
    return OperationTimer(engine, job, layers.__getitem__, [range(len(layers))], {})


def _schedule(
    layers: Sequence[BuiltLayer], step_operations: Mapping[Operation, TimedOperation]
) -> Iterator[_ScheduledOperation]:
    """Yield operations in step order: forward, loss, backward, other operations of the step."""
    for index, _, operations in layers:
        yield _ScheduledOperation((index,), "forward", operations["forward"])
    if "loss" in step_operations:
        yield _ScheduledOperation((), "loss", step_operations["loss"])
    for index, timed_layer, operations in reversed(layers):
        contained: dict[Operation, Operation] = {
            gradient.operation: "input gradient" for gradient in timed_layer.gradients() if gradient.has_input_gradient
        }
        yield from (
            _ScheduledOperation((index,), operation, operations[operation], contained.get(operation))
            for operation in _BACKWARD_OPERATIONS
            if operation in operations
        )
    yield from (
        _ScheduledOperation((), operation, timed) for operation, timed in step_operations.items() if operation != "loss"
    )


def _subtract(timed: OperationTime, contained: OperationTime | None) -> OperationTime:
    """Subtract the time of the contained operation, if any."""
    if contained is None:
        return timed
    both = timed.gc_seconds, contained.gc_seconds
    gc_seconds = None if both[0] is None or both[1] is None else both[0] - both[1]
    return OperationTime(timed.layers, timed.operation, timed.seconds - contained.seconds, gc_seconds)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
