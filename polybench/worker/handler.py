"""Answers the calls to a worker with one engine."""

from __future__ import annotations

import gc
import importlib
import math
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from polybench.data.batch_files import EpochFile, PipelineFiles, open_epoch, open_mapped
from polybench.engines.base import Array, Engine, PipelineInput, Weights
from polybench.engines.job import SINGLE_RANK, Job, Rank
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.memory import read_rss
from polybench.networks.timed_layers import TimedLayer
from polybench.protocol import calls
from polybench.protocol.calls import (
    AllocationsCounted,
    Answer,
    Calibrated,
    Evaluated,
    Loaded,
    NotAvailable,
    NumpyKernels,
    NumpyTimes,
    OperationTime,
    PipelineAndTrainingTimed,
    Prepared,
    Reply,
    Request,
    RequestFailed,
    Trained,
)
from polybench.protocol.loaded_code import loaded_code
from polybench.schema.measurements import AllocationProfile
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import BlockMeasured, NativeAllocation
from polybench.schema.result import Startup
from polybench.worker.allocations import count_native_allocations, measure_memory_and_allocations, reset_and_warm_up
from polybench.worker.bottlenecks import allreduce_seconds, pipeline_seconds, training_seconds
from polybench.worker.layers import (
    OperationTimer,
    build_network_operations,
    build_standalone_operations,
    write_layer_tensors,
)
from polybench.worker.numpy_peak import time_numpy
from polybench.worker.timing_loop import calibrate, measure_block, require_finite

EVALUATION_BATCH_SIZE = 500
"""Test images per batch. It divides CIFAR-10's 10,000; for other data sets the last batch is smaller."""


class Worker:
    """An engine, and a method for each call of `protocol.calls`."""

    def __init__(self, process_seconds: float = 0.0) -> None:
        self._process_seconds = process_seconds
        self._import_seconds = 0.0
        self._rss_after_import_bytes = 0
        self._engine: Engine | None = None
        self._rank = SINGLE_RANK
        self._epoch: EpochFile
        self._job: Job
        self._operation_timer: OperationTimer

    def handle(self, request: Request[Any]) -> Reply:
        """Answer a request; an exception becomes a reply, with its traceback on standard error."""
        name = request.call.name
        try:
            value = getattr(self, name)(**msgspec.structs.asdict(request.arguments))
            # During a whole training, no other engine runs, so its pipeline may prefetch.
            if self._engine is not None and request.call not in (calls.close, calls.train):
                self._engine.wait_until_idle()
            return Answer(name, value)
        except EngineUnavailable as error:
            return NotAvailable(error.reason, error.hint)
        except ConfigurationFailed as error:
            return RequestFailed(str(error))
        except MemoryError:
            traceback.print_exc()
            return RequestFailed(f"out of memory in {name}")
        except Exception as error:
            traceback.print_exc()
            text = str(error).strip().splitlines()
            return RequestFailed(f"{type(error).__name__} in {name}: {text[0] if text else 'no message'}")

    @property
    def engine(self) -> Engine:
        """The loaded engine; raises ConfigurationFailed before `load`."""
        if self._engine is None:
            raise ConfigurationFailed("no engine loaded")
        return self._engine

    def load(self, factory: str, rank: Rank, program: str | None) -> Loaded:
        module, _, name = factory.partition(":")
        start = time.perf_counter()
        try:
            make_engine = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:  # a plug-in engine, in an environment without its package
            package = str(error.name).partition(".")[0]
            raise EngineUnavailable(f"cannot import the engine: {error}", f"pip install {package}") from error
        engine: Engine = make_engine() if program is None else make_engine(program)
        if rank.count > 1:
            engine.join_process_group(rank)
        self._rank = rank
        self._import_seconds = time.perf_counter() - start
        gc.freeze()  # so that the collection before each timing block does not pass the framework's own objects
        self._rss_after_import_bytes = read_rss().total
        self._engine = engine
        return Loaded(engine.probe(), loaded_code())

    def list_code(self) -> dict[str, str]:
        return loaded_code()

    def prepare(
        self, job: Job, weights: str, epoch: EpochFile, warmup_steps: int, pipeline: PipelineFiles | None
    ) -> Prepared:
        engine, initial_weights = self.engine, read_tensors(weights)
        engine.folder = Path(weights).parent
        build_seconds = _time_call(lambda: engine.build(job, initial_weights))
        self._epoch, self._job = epoch, job
        data_seconds = self._load_preloaded() if pipeline is None else self._open_pipeline(pipeline)
        engine.reset()
        seconds: list[float] = []
        losses: list[float] = []
        for step in range(warmup_steps):
            seconds.append(engine.run_steps(step, 1))
            losses += require_finite(engine, f"in step {step} of the warm-up")
        if warmup_steps:
            self._require_variants()
        first, second, *_ = [*seconds, 0.0, 0.0]
        startup = Startup(
            process_seconds=self._process_seconds,
            import_seconds=self._import_seconds,
            build_seconds=build_seconds,
            data_seconds=data_seconds,
            first_step_seconds=first,
            second_step_seconds=second,
            detail=engine.startup_detail(),
        )
        resolution, has_overhead = engine.timing_resolution, engine.has_call_overhead
        return Prepared(startup, resolution, has_overhead, engine.conventions(), losses, engine.program)

    def _load_preloaded(self) -> float:
        shard = np.s_[:, self._rank.shard(self._epoch.batch_size)]
        images, labels = (array[shard] for array in open_epoch(self._epoch))
        return _time_call(lambda: self.engine.load(images, labels))

    def _open_pipeline(self, file: PipelineFiles) -> float:
        pipeline = PipelineInput(
            images=open_mapped(file.images_path),
            labels=open_mapped(file.labels_path),
            order=open_mapped(file.order_path),
            augmentations=None if file.augmentations_path is None else open_mapped(file.augmentations_path),
            workers=file.loader_workers,
        )
        return _time_call(lambda: self.engine.open_pipeline(pipeline))

    def write_batch(self, step: int, path: str) -> None:
        images, labels = self.engine.batch(step)
        np.savez(path, images=images, labels=labels)

    def take_snapshot(self, step: int, gradients: str, weights: str) -> float | None:
        snapshot = self.engine.snapshot(step)
        if self._rank.number == 0:  # all ranks have the same tensors
            write_tensors(gradients, snapshot.gradients)
            write_tensors(weights, snapshot.weights)
        return _finite_or_none(snapshot.loss)

    def run_steps(self, first_step: int, steps: int) -> float | None:
        self.engine.run_steps(first_step, steps)
        self._require_variants()
        return None if self.engine.is_forward_pass else _finite_or_none(self.engine.loss())

    def _require_variants(self) -> None:
        """Raise ConfigurationFailed if the framework has silently turned off what is measured."""
        if reason := self.engine.inactive_variant():
            raise ConfigurationFailed(reason)

    def find_float64(self) -> list[str]:
        return self.engine.float64_tensors() if self._job.dtype == "float32" else []

    def calibrate(self, steps: int) -> Calibrated:
        return calibrate(self.engine, steps)

    def measure_block(self, steps: int, injected_delay: float) -> BlockMeasured:
        return measure_block(self.engine, steps, injected_delay)

    def reset_training(self, weights: str) -> None:
        self.engine.set_initial_weights(read_tensors(weights))
        self.engine.reset()

    def train(self, first_step: int, steps: int) -> Trained:
        seconds = self.engine.run_steps(first_step, steps)
        return Trained(seconds, *require_finite(self.engine, f"after {first_step + steps} steps"))

    def save_training(self, path: str) -> str:
        state = self.engine.training_state()
        if not state:
            return "this engine cannot resume a training in another process"
        try:
            write_tensors(path, state)
        except OSError as error:
            return f"cannot write {path}: {error}"
        return ""

    def restore_training(self, path: str) -> None:
        self.engine.restore_training_state(read_tensors(path))

    def evaluate(self, test: EpochFile) -> Evaluated:
        images, labels = (array[0] for array in open_epoch(test))
        return evaluate(self.engine, images, labels)

    def write_statistics(self, step: int, path: str) -> None:
        write_tensors(path, self.engine.statistics_after(step))

    def write_logits(self, epoch: EpochFile, path: str) -> None:
        images, _ = open_epoch(epoch)
        write_tensors(path, {"logits": np.concatenate([self.engine.logits(batch) for batch in images])})

    def write_step_logits(self, path: str) -> None:
        write_tensors(path, {"logits": self.engine.step_logits()})

    def count_allocations(self, steps: int) -> AllocationsCounted:
        memory, allocations = measure_memory_and_allocations(self.engine, steps)
        baseline = self._rss_after_import_bytes
        return AllocationsCounted(msgspec.structs.replace(memory, rss_after_import_bytes=baseline), allocations)

    def trace_native_allocations(self, steps: int) -> NativeAllocation:
        return count_native_allocations(self.engine, steps)

    def list_allocation_sites(self, steps: int) -> AllocationProfile:
        reset_and_warm_up(self.engine)
        return self.engine.allocation_sites(WARMUP_STEPS_PER_BLOCK, steps)

    def time_pipeline_and_training(self, steps: int) -> PipelineAndTrainingTimed:
        pipeline = pipeline_seconds(self.engine, steps)
        self._load_preloaded()
        return PipelineAndTrainingTimed(pipeline, training_seconds(self.engine, steps))

    def time_allreduce(self, steps: int) -> tuple[float, float] | None:
        return allreduce_seconds(self.engine, steps)

    def write_layer_tensors(self, folder: str) -> None:
        write_layer_tensors(self.engine, self._job, Path(folder))

    def build_layer_ops(self, weights: str, folder: str) -> None:
        tensors = read_tensors(weights)
        self._operation_timer = build_network_operations(self.engine, self._job, tensors, Path(folder))

    def build_standalone_ops(self, layers: list[tuple[TimedLayer, int]]) -> None:
        self._operation_timer = build_standalone_operations(self.engine, self._job, layers)

    def time_layer_ops(self, repeats: int) -> list[OperationTime]:
        return self._operation_timer.time(repeats)

    def time_numpy(self, kernels: NumpyKernels) -> NumpyTimes:
        return time_numpy(kernels)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def evaluate(engine: Engine, images: Array, labels: Array) -> Evaluated:
    """Evaluate the current weights on all images, batch by batch."""
    batches = (slice(first, first + EVALUATION_BATCH_SIZE) for first in range(0, len(labels), EVALUATION_BATCH_SIZE))
    correct, losses = zip(*(engine.evaluate(images[batch], labels[batch]) for batch in batches), strict=True)
    loss = sum(losses) / labels.size
    return Evaluated(sum(correct) / labels.size, loss if math.isfinite(loss) else None)


def read_tensors(path: str) -> Weights:
    """Read tensors in canonical layout from an `.npz` file."""
    with np.load(path) as file:
        return dict(file)


def write_tensors(path: str, tensors: Weights) -> None:
    """Write tensors to an `.npz` file."""
    arrays: dict[str, Any] = dict(tensors)
    np.savez(path, **arrays)


def _finite_or_none(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None  # JSON has no NaN


def _time_call(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
