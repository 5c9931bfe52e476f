"""Handles requests to a worker with one engine."""

from __future__ import annotations

import importlib
import math
import time
import traceback
from collections.abc import Callable
from functools import singledispatchmethod
from pathlib import Path

import msgspec
import numpy as np

from polybench.data.batch_files import EpochFile, PipelineFiles, open_epoch, open_mapped
from polybench.engines.base import Engine, PipelineInput
from polybench.engines.job import SINGLE_RANK, Job
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.memory import read_rss
from polybench.protocol.allreduce_messages import AllReduceTimed, TimeAllReduce
from polybench.protocol.layer_messages import (
    BuildLayerOps,
    LayerOpsBuilt,
    LayerOpsTimed,
    LayerTensorsWritten,
    TimeLayerOps,
    WriteLayerTensors,
)
from polybench.protocol.messages import (
    AllocationsCounted,
    AllocationSitesListed,
    BatchWritten,
    BlockMeasured,
    Close,
    Closed,
    CountAllocations,
    Done,
    Evaluate,
    Evaluated,
    ListAllocationSites,
    Load,
    Loaded,
    MeasureBlock,
    NativeAllocationsTraced,
    NotAvailable,
    PipelineAndTrainingTimed,
    Prepare,
    Prepared,
    Request,
    RequestFailed,
    ResetTraining,
    Response,
    RunSteps,
    SnapshotTaken,
    TakeSnapshot,
    TimePipelineAndTraining,
    TraceNativeAllocations,
    Train,
    Trained,
    WriteBatch,
    message_name,
)
from polybench.protocol.peak_messages import BuildStandaloneOps, NumpyTimed, TimeNumpy
from polybench.protocol.training_messages import RestoreTraining, SaveTraining, TrainingSaved
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.result import Startup
from polybench.worker.allreduce_time import allreduce_seconds
from polybench.worker.code_fingerprint import code_fingerprint
from polybench.worker.count_allocations import measure_memory_and_allocations, reset_and_warm_up
from polybench.worker.evaluation import accuracy, save_training
from polybench.worker.layers import (
    OperationTimer,
    build_network_operations,
    build_standalone_operations,
    write_layer_tensors,
)
from polybench.worker.native_allocations import count_native_allocations
from polybench.worker.numpy_peak import product_seconds, triad_seconds
from polybench.worker.pipeline_vs_training import pipeline_seconds, training_seconds
from polybench.worker.tensors import read_tensors, write_tensors
from polybench.worker.timing_loop import measure_block, require_finite_loss


class Worker:
    """An engine, and a handler for each type of request."""

    def __init__(self, process_seconds: float = 0.0) -> None:
        self._process_seconds = process_seconds
        self._import_seconds = 0.0
        self._rss_after_import_bytes = 0
        self._engine: Engine | None = None
        self._rank = SINGLE_RANK
        self._epoch: EpochFile | None = None
        self._job: Job
        self._operation_timer: OperationTimer

    def handle(self, request: Request) -> Response:
        """Handle a request; an exception becomes a response, with its traceback on standard error."""
        try:
            response = self._dispatch(request)
            # During a whole training, no other engine runs, so its pipeline may prefetch.
            if self._engine is not None and not isinstance(request, Close | Train):
                self._engine.wait_until_idle()
            return response
        except EngineUnavailable as error:
            return NotAvailable(error.reason, error.hint)
        except ConfigurationFailed as error:
            return RequestFailed(str(error))
        except MemoryError:
            traceback.print_exc()
            return RequestFailed(f"out of memory in {message_name(request)}")
        except Exception as error:
            traceback.print_exc()
            text = str(error).strip().splitlines()
            return RequestFailed(
                f"{type(error).__name__} in {message_name(request)}: {text[0] if text else 'no message'}"
            )

    @singledispatchmethod
    def _dispatch(self, request: Request) -> Response:
        """Call the handler of this type of request."""
        raise TypeError(f"no handler for {type(request).__name__}")

    @property
    def engine(self) -> Engine:
        """The loaded engine; raises ConfigurationFailed before `Load`."""
        if self._engine is None:
            raise ConfigurationFailed("no engine loaded")
        return self._engine

    @_dispatch.register
    def _load(self, request: Load) -> Loaded:
        module, _, name = request.factory.partition(":")
        start = time.perf_counter()
        try:
            factory = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:  # a plug-in engine, in an environment without its package
            package = str(error.name).partition(".")[0]
            raise EngineUnavailable(f"cannot import the engine: {error}", f"pip install {package}") from error
        engine: Engine = factory()
        engine.load_framework()
        if request.rank.count > 1:
            engine.join_process_group(request.rank)
        self._rank = request.rank
        self._import_seconds = time.perf_counter() - start
        self._rss_after_import_bytes = read_rss().total
        self._engine = engine
        return Loaded(engine.probe(), code_fingerprint())

    @_dispatch.register
    def _prepare(self, request: Prepare) -> Prepared:
        engine = self.engine
        weights = read_tensors(request.weights)
        build_seconds = _time_call(lambda: engine.build(request.job, weights))
        self._epoch, self._job = request.epoch, request.job
        data_seconds = self._load_preloaded() if request.pipeline is None else self._open_pipeline(request.pipeline)
        engine.reset()
        seconds, losses = [], []
        for step in range(request.warmup_steps):
            seconds.append(engine.run_steps(step, 1))
            losses.append(require_finite_loss(engine, f"in step {step} of the warm-up"))
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
        return Prepared(startup, engine.timing_resolution, engine.has_call_overhead, engine.conventions(), losses)

    def _load_preloaded(self) -> float:
        assert self._epoch is not None
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

    @_dispatch.register
    def _write_batch(self, request: WriteBatch) -> BatchWritten:
        images, labels = self.engine.batch(request.step)
        write_tensors(request.path, {"images": images, "labels": labels})
        return BatchWritten()

    @_dispatch.register
    def _take_snapshot(self, request: TakeSnapshot) -> SnapshotTaken:
        snapshot = self.engine.snapshot(request.step)
        if self._rank.number == 0:  # all ranks have the same tensors
            write_tensors(request.gradients, snapshot.gradients)
            write_tensors(request.weights, snapshot.weights)
        return SnapshotTaken(snapshot.loss if math.isfinite(snapshot.loss) else None)

    @_dispatch.register
    def _run_steps(self, request: RunSteps) -> Done:
        self.engine.run_steps(request.first_step, request.steps)
        return Done()

    @_dispatch.register
    def _measure_block(self, request: MeasureBlock) -> BlockMeasured:
        block = measure_block(self.engine, request.steps, request.injected_delay)
        return BlockMeasured(
            block.step_times,
            request.steps // len(block.step_times),
            read_rss().peak,
            block.gc_stats,
            block.data_wait_seconds,
            block.call_overhead_seconds,
        )

    @_dispatch.register
    def _reset_training(self, request: ResetTraining) -> Done:
        self.engine.set_initial_weights(read_tensors(request.weights))
        self.engine.reset()
        return Done()

    @_dispatch.register
    def _train(self, request: Train) -> Trained:
        seconds = self.engine.run_steps(request.first_step, request.steps)
        return Trained(seconds, require_finite_loss(self.engine, f"after {request.first_step + request.steps} steps"))

    @_dispatch.register
    def _save_training(self, request: SaveTraining) -> TrainingSaved:
        return save_training(self.engine, request.path)

    @_dispatch.register
    def _restore_training(self, request: RestoreTraining) -> Done:
        self.engine.restore_training_state(read_tensors(request.path))
        return Done()

    @_dispatch.register
    def _evaluate(self, request: Evaluate) -> Evaluated:
        images, labels = (array[0] for array in open_epoch(request.test))
        return Evaluated(accuracy(self.engine, images, labels))

    @_dispatch.register
    def _count_allocations(self, request: CountAllocations) -> AllocationsCounted:
        memory, allocations = measure_memory_and_allocations(self.engine, request.steps)
        baseline = self._rss_after_import_bytes
        return AllocationsCounted(msgspec.structs.replace(memory, rss_after_import_bytes=baseline), allocations)

    @_dispatch.register
    def _trace_native_allocations(self, request: TraceNativeAllocations) -> NativeAllocationsTraced:
        return NativeAllocationsTraced(count_native_allocations(self.engine, request.steps))

    @_dispatch.register
    def _list_allocation_sites(self, request: ListAllocationSites) -> AllocationSitesListed:
        reset_and_warm_up(self.engine)
        return AllocationSitesListed(self.engine.allocation_sites(WARMUP_STEPS_PER_BLOCK, request.steps))

    @_dispatch.register
    def _time_pipeline_and_training(self, request: TimePipelineAndTraining) -> PipelineAndTrainingTimed:
        pipeline = pipeline_seconds(self.engine, request.steps)
        self._load_preloaded()
        return PipelineAndTrainingTimed(pipeline, training_seconds(self.engine, request.steps))

    @_dispatch.register
    def _time_allreduce(self, request: TimeAllReduce) -> AllReduceTimed:
        return AllReduceTimed(allreduce_seconds(self.engine, request.steps))

    @_dispatch.register
    def _write_layer_tensors(self, request: WriteLayerTensors) -> LayerTensorsWritten:
        write_layer_tensors(self.engine, self._job, Path(request.folder))
        return LayerTensorsWritten()

    @_dispatch.register
    def _build_layer_ops(self, request: BuildLayerOps) -> LayerOpsBuilt:
        weights = read_tensors(request.weights)
        self._operation_timer = build_network_operations(self.engine, self._job, weights, Path(request.folder))
        return LayerOpsBuilt()

    @_dispatch.register
    def _build_standalone_ops(self, request: BuildStandaloneOps) -> LayerOpsBuilt:
        self._operation_timer = build_standalone_operations(self.engine, self._job, request.operations)
        return LayerOpsBuilt()

    @_dispatch.register
    def _time_numpy(self, request: TimeNumpy) -> NumpyTimed:
        repeats, nbytes = request.repeats, request.triad_bytes
        products = [product_seconds(size, repeats) for size in request.sizes]
        triad = None if nbytes is None else triad_seconds(nbytes, request.threads, repeats)
        return NumpyTimed(products, triad)

    @_dispatch.register
    def _time_layer_ops(self, request: TimeLayerOps) -> LayerOpsTimed:
        return LayerOpsTimed(self._operation_timer.time(request.repeats))

    @_dispatch.register
    def _close(self, _: Close) -> Closed:
        if self._engine is not None:
            self._engine.close()
        return Closed()


def _time_call(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
