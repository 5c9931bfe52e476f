"""One engine and the requests that it obeys."""

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

from polybench.core.document.times import Startup
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import ALONE, Job
from polybench.core.spec import UNTIMED_STEPS
from polybench.data.epoch import EpochFile, open_epoch
from polybench.data.stream import StreamFile, mapped
from polybench.engines.base import Engine, Stream
from polybench.machine.resident_memory import resident
from polybench.wire.layer_messages import (
    LayersOpened,
    LayersTimed,
    LayersWritten,
    OpenLayers,
    TimeLayers,
    WriteLayers,
)
from polybench.wire.limit_messages import NumpyTimed, OpenAlone, TimeNumpy
from polybench.wire.messages import (
    Advance,
    Advanced,
    Answer,
    BatchWritten,
    Close,
    Closed,
    Count,
    Counted,
    CountNative,
    Evaluate,
    Evaluated,
    Failed,
    FindPlaces,
    Load,
    Loaded,
    Measure,
    Measured,
    Missing,
    NativeCounted,
    PlacesFound,
    Prepare,
    Prepared,
    Request,
    Restart,
    SnapshotTaken,
    TakeBatch,
    TakeSnapshot,
    TimedSeparately,
    TimeSeparately,
    Train,
    Trained,
    tag,
)
from polybench.wire.replica_messages import ExchangeTimed, TimeExchange
from polybench.wire.training_messages import GoOn, KeepTraining, TrainingKept
from polybench.worker.counted import count, start
from polybench.worker.exchanged import exchange_seconds
from polybench.worker.layers import Layers, alone, of_network, write_layers
from polybench.worker.loaded_code import loaded_code
from polybench.worker.native import count_native
from polybench.worker.numpy_limits import product_seconds, triad_seconds
from polybench.worker.separately import pipeline_seconds, training_seconds
from polybench.worker.tensors import read_tensors, write_tensors
from polybench.worker.timed import finite_loss, measure_block
from polybench.worker.trained import accuracy, keep_training


class Worker:
    """One engine and the requests that it understands."""

    def __init__(self, process_seconds: float = 0.0) -> None:
        self._process_seconds = process_seconds
        self._import_seconds = 0.0
        self._baseline_rss_bytes = 0
        self._engine: Engine | None = None
        self._rank = ALONE
        self._epoch: EpochFile | None = None
        self._job: Job
        self._layers: Layers

    def answer(self, request: Request) -> Answer:
        """Obey; what goes wrong becomes an answer, with the traceback on standard error."""
        try:
            answer = self._obey(request)
            # A training goes on, and is alone on the machine: its pipeline may run ahead.
            if self._engine is not None and not isinstance(request, Close | Train):
                self._engine.wait_until_idle()
            return answer
        except Unavailable as missing:
            return Missing(missing.reason, missing.remedy)
        except CellFailed as failure:
            return Failed(str(failure))
        except MemoryError:
            traceback.print_exc()
            return Failed(f"out of memory in {tag(request)}")
        except Exception as error:
            traceback.print_exc()
            text = str(error).strip().splitlines()
            return Failed(f"{type(error).__name__} in {tag(request)}: {text[0] if text else 'no message'}")

    @singledispatchmethod
    def _obey(self, request: Request) -> Answer:
        """One method for each kind of request."""
        raise TypeError(f"no answer to {type(request).__name__}")

    @property
    def engine(self) -> Engine:
        """The loaded one; raises CellFailed before `Load`."""
        if self._engine is None:
            raise CellFailed("no engine loaded")
        return self._engine

    @_obey.register
    def _load(self, request: Load) -> Loaded:
        module, _, name = request.factory.partition(":")
        start = time.perf_counter()
        try:
            factory = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:  # another package's engine, in an environment without it
            package = str(error.name).partition(".")[0]
            raise Unavailable(f"the engine does not load: {error}", f"pip install {package}") from error
        engine: Engine = factory()
        engine.load_framework()
        if request.rank.count > 1:
            engine.join(request.rank)
        self._rank = request.rank
        self._import_seconds = time.perf_counter() - start
        self._baseline_rss_bytes = resident().total
        self._engine = engine
        return Loaded(engine.probe(), loaded_code())

    @_obey.register
    def _prepare(self, request: Prepare) -> Prepared:
        engine = self.engine
        weights = read_tensors(request.weights)
        build_seconds = _timed(lambda: engine.build(request.job, weights))
        self._epoch, self._job = request.epoch, request.job
        data_seconds = self._load_preloaded() if request.stream is None else self._open_stream(request.stream)
        engine.reset()
        seconds, losses = [], []
        for step in range(request.warm_up):
            seconds.append(engine.run_steps(step, 1))
            losses.append(finite_loss(engine, f"in step {step} of the warm-up"))
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
        return Prepared(startup, engine.sample_kind, engine.calls_cost, engine.conventions(), losses)

    def _load_preloaded(self) -> float:
        assert self._epoch is not None
        part = np.s_[:, self._rank.part(self._epoch.batch_size)]
        images, labels = (one[part] for one in open_epoch(self._epoch))
        return _timed(lambda: self.engine.load(images, labels))

    def _open_stream(self, file: StreamFile) -> float:
        stream = Stream(
            images=mapped(file.images_path),
            labels=mapped(file.labels_path),
            order=mapped(file.order_path),
            decisions=None if file.decisions_path is None else mapped(file.decisions_path),
            workers=file.workers,
        )
        return _timed(lambda: self.engine.open_stream(stream))

    @_obey.register
    def _take_batch(self, request: TakeBatch) -> BatchWritten:
        images, labels = self.engine.batch(request.step)
        write_tensors(request.path, {"images": images, "labels": labels})
        return BatchWritten()

    @_obey.register
    def _snapshot(self, request: TakeSnapshot) -> SnapshotTaken:
        snapshot = self.engine.snapshot(request.step)
        if self._rank.number == 0:  # all ranks have the same
            write_tensors(request.gradients, snapshot.gradients)
            write_tensors(request.weights, snapshot.weights)
        return SnapshotTaken(snapshot.loss if math.isfinite(snapshot.loss) else None)

    @_obey.register
    def _advance(self, request: Advance) -> Advanced:
        self.engine.run_steps(request.first, request.n)
        return Advanced()

    @_obey.register
    def _measure(self, request: Measure) -> Measured:
        block = measure_block(self.engine, request.steps, request.handicap)
        steps_per_sample = request.steps // len(block.step_seconds)
        peak, seconds, waited = resident().peak, block.step_seconds, block.waited_seconds
        return Measured(seconds, steps_per_sample, peak, block.collected, waited, block.call_seconds)

    @_obey.register
    def _restart(self, request: Restart) -> Advanced:
        self.engine.start_from(read_tensors(request.weights))
        self.engine.reset()
        return Advanced()

    @_obey.register
    def _train(self, request: Train) -> Trained:
        seconds = self.engine.run_steps(request.first, request.n)
        return Trained(seconds, finite_loss(self.engine, f"after {request.first + request.n} steps"))

    @_obey.register
    def _keep_training(self, request: KeepTraining) -> TrainingKept:
        return keep_training(self.engine, request.path)

    @_obey.register
    def _go_on(self, request: GoOn) -> Advanced:
        self.engine.go_on_from(read_tensors(request.path))
        return Advanced()

    @_obey.register
    def _evaluate(self, request: Evaluate) -> Evaluated:
        images, labels = (part[0] for part in open_epoch(request.test))
        return Evaluated(accuracy(self.engine, images, labels))

    @_obey.register
    def _count(self, request: Count) -> Counted:
        memory, allocations = count(self.engine, request.steps)
        baseline = self._baseline_rss_bytes
        return Counted(msgspec.structs.replace(memory, baseline_rss_bytes=baseline), allocations)

    @_obey.register
    def _count_native(self, request: CountNative) -> NativeCounted:
        return NativeCounted(count_native(self.engine, request.steps))

    @_obey.register
    def _find_places(self, request: FindPlaces) -> PlacesFound:
        start(self.engine)
        return PlacesFound(self.engine.allocation_places(UNTIMED_STEPS, request.steps))

    @_obey.register
    def _time_separately(self, request: TimeSeparately) -> TimedSeparately:
        pipeline = pipeline_seconds(self.engine, request.steps)
        self._load_preloaded()
        return TimedSeparately(pipeline, training_seconds(self.engine, request.steps))

    @_obey.register
    def _time_exchange(self, request: TimeExchange) -> ExchangeTimed:
        return ExchangeTimed(exchange_seconds(self.engine, request.steps))

    @_obey.register
    def _write_layers(self, request: WriteLayers) -> LayersWritten:
        write_layers(self.engine, self._job, Path(request.folder))
        return LayersWritten()

    @_obey.register
    def _open_layers(self, request: OpenLayers) -> LayersOpened:
        weights = read_tensors(request.weights)
        self._layers = of_network(self.engine, self._job, weights, Path(request.folder))
        return LayersOpened()

    @_obey.register
    def _open_alone(self, request: OpenAlone) -> LayersOpened:
        self._layers = alone(self.engine, self._job, request.given)
        return LayersOpened()

    @_obey.register
    def _time_numpy(self, request: TimeNumpy) -> NumpyTimed:
        repeats, nbytes = request.repeats, request.triad_bytes
        products = [product_seconds(size, repeats) for size in request.sizes]
        triad = None if nbytes is None else triad_seconds(nbytes, request.threads, repeats)
        return NumpyTimed(products, triad)

    @_obey.register
    def _time_layers(self, request: TimeLayers) -> LayersTimed:
        return LayersTimed(self._layers.time(request.repeats))

    @_obey.register
    def _close(self, _: Close) -> Closed:
        if self._engine is not None:
            self._engine.close()
        return Closed()


def _timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
