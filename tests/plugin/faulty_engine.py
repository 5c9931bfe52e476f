"""The engine `faulty` of the tests: simulated like `fake`, with other step times or a failure per variant."""

from __future__ import annotations

import math
import os
import signal
import threading

import msgspec

from polybench.engines import ENGINES, Variant
from polybench.engines.base import Weights
from polybench.engines.fake.engine import STEP_SECONDS, FakeEngine
from polybench.engines.job import SINGLE_RANK, Job, Rank
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations

OVERHEAD_SECONDS, SECONDS_PER_IMAGE = 2e-3, 10e-6  # of `linear_cost`
CALLS_BEFORE_FAILURE = 4  # a worker's first steps and its warm-up; later calls are measured
STEPS_BEFORE_NAN = {"nan": 4, "diverge": 25}  # in the first timing block; only in a whole training
MAX_HOG_BYTES = 1 << 30
CALLS_BEFORE_HOG = 30  # in the first round, after the calibration block


class FaultyEngine(FakeEngine):
    """FakeEngine with variants that simulate failures, or change the time of a step."""

    def __init__(self) -> None:
        super().__init__()
        self._variants: tuple[str, ...] = ()
        self._rank = SINGLE_RANK
        self._calls = 0

    def join_process_group(self, rank: Rank) -> None:
        self._rank = rank

    def build(self, job: Job, weights: Weights) -> None:
        if "unavailable" in job.variants:
            raise EngineUnavailable("the faulty framework is not installed", "use faulty without +unavailable")
        self._variants = job.variants
        self._last_trained = [layer.name for layer in split_layers(job.model) if layer.weight_shapes()][-1]
        super().build(job, weights)
        if "slow_last_layer" in job.variants:
            self._step_seconds += STEP_SECONDS

    def training_seconds(self, job: Job) -> float:
        if "linear_cost" in job.variants:
            return OVERHEAD_SECONDS + SECONDS_PER_IMAGE * job.workload.batch_size
        return super().training_seconds(job)

    def run_steps(self, first: int, n: int) -> float:
        self._calls += 1
        if self._calls > CALLS_BEFORE_FAILURE:
            self._fail()
        return super().run_steps(first, n)

    def loss(self) -> float:
        late = any(name in self._variants and self._steps > steps for name, steps in STEPS_BEFORE_NAN.items())
        return math.nan if late else super().loss()

    def count_allocations(self, first: int, n: int) -> Allocations:
        self._reject_counting()
        return super().count_allocations(first, n)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        self._reject_counting()
        return super().allocation_sites(first, n)

    def untraced_native_allocations(self) -> str:
        self._reject_counting()
        return super().untraced_native_allocations()

    def _reject_counting(self) -> None:
        if "no_allocation_count" in self._variants:
            raise RuntimeError("the faulty profiler does not start")

    def layer_seconds(self, timed_layer: TimedLayer) -> dict[Operation, float]:
        seconds = super().layer_seconds(timed_layer)
        if "slow_last_layer" in self._variants and timed_layer.name == self._last_trained:
            seconds[[one for one in seconds if one != "relu gradient"][-1]] += STEP_SECONDS
        return seconds

    def _fail(self) -> None:
        if "crash" in self._variants:
            if self._rank.count > 1 and self._rank.number == 0:
                threading.Event().wait()  # rank 0 waits for gradients of a rank that crashed
            os.kill(os.getpid(), signal.SIGSEGV)
        if "memory_hog" in self._variants and self._calls == CALLS_BEFORE_HOG:
            self._hog = [bytes([1]) * (64 << 20) for _ in range(MAX_HOG_BYTES // (64 << 20))]
        if "hang" in self._variants:
            threading.Event().wait()
        if "bad_message" in self._variants:
            os.write(int(os.environ["POLYBENCH_RESPONSES_FD"]), b"malformed message\n")


ENGINE = msgspec.structs.replace(
    ENGINES["fake"],
    factory="faulty_engine:FaultyEngine",
    summary="simulated training that fails, or takes another time, on request",
    variants={
        "bad_message": Variant("sends a malformed message"),
        "crash": Variant("crashes while it is measured"),
        "diverge": Variant("the loss becomes NaN in a long training"),
        "hang": Variant("does not reply when it is measured"),
        "linear_cost": Variant("a step takes 2 ms plus 10 us per image"),
        "memory_hog": Variant("allocates 1 GiB while it is measured"),
        "nan": Variant("the loss becomes NaN"),
        "no_allocation_count": Variant("counting allocations fails"),
        "slow_last_layer": Variant("the last trained layer's weight gradient takes one step time longer"),
        "unavailable": Variant("reports that its framework is not installed"),
    },
)
