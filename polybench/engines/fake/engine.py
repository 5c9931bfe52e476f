"""A scripted engine: its clock never looks at the time, its losses are a formula, its accidents are ordered.

For tests of everything around an engine, and to try polybench without a framework.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from polybench.core.document.layers import Part
from polybench.core.document.places import Place, Places
from polybench.core.document.resources import Allocation, Allocations
from polybench.core.errors import Unavailable
from polybench.core.job import ALONE, EXACT, Collected, Conventions, Job, Probe, Rank
from polybench.core.pieces import Piece, pieces
from polybench.engines.base import Array, Engine, Replayed, Snapshot, Stream, Weights

STEP_SECONDS = 0.010
FIXED_SECONDS, SECONDS_PER_IMAGE = 2e-3, 10e-6  # of `line`
# Real processes of one program differ from each other more than the steps of one process do. These are the
# most by which they differ here, so that what a test says of a ratio is certain.
PROCESS_NOISE = 0.02
STEP_NOISE = 0.005
# A worker's first steps and its warm-up are called first; what comes after them is measured.
CALLS_BEFORE_ACCIDENT = 4
WAITING_SECONDS = 0.002
DRAWING_SECONDS = 0.005
STEPS_BEFORE_NAN = {"nan": 4, "diverge": 25}  # in the first block; in a whole training only
STEPS_TO_HALF_RIGHT = 10
COLLECTION_SECONDS = 0.001
MOST_EATEN = 1 << 30  # by `hungry`, where nothing limits it
CALLS_BEFORE_HUNGER = 30  # in the first round, after the block that calibrates
STEPS_OF_A_SWEEP = 10
PLACES = Places("script", "what the script says", [Place("scene", 3 << 20, 12, 2, 1 << 20)])
EXCHANGE_SHARE = 0.1  # of a step in replicas
LAYERS_SHARE = 0.8  # of a step, in equal parts
STEP_PARTS: dict[Part, float] = {"loss": 0.0004, "update": 0.0003, "call": 0.0001}
ALLOCATED = Allocation(12, 3 << 20, "script", "what the script says")


class FakeEngine(Engine):
    """Plays a script: steps of `slow`, `line` and `uneven` have another length, the others are accidents."""

    sample_kind: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._random = random.Random(os.getpid())
        self._process_factor = 1 + PROCESS_NOISE * self._random.uniform(-1, 1)
        self._variants: tuple[str, ...] = ()
        self._rank = ALONE
        self._step_seconds = STEP_SECONDS
        self._calls = 0
        self._steps = 0
        self._all_steps = 0
        self._streams = False

    def load_framework(self) -> None:
        pass

    def join(self, rank: Rank) -> None:
        self._rank = rank

    def probe(self) -> Probe:
        return Probe({"fake": "1"}, {}, ("cpu",))

    def build(self, job: Job, weights: Weights) -> None:  # noqa: ARG002
        if "unavailable" in job.variants:
            raise Unavailable("the fake framework is not installed", "ask for plain fake")
        self._variants = job.variants
        if "line" in job.variants:
            self._step_seconds = FIXED_SECONDS + SECONDS_PER_IMAGE * job.workload.batch_size
        found = pieces(job.model)
        parts = sum(1 + len(piece.gradients()) + piece.activated for piece in found)
        self._part_seconds = LAYERS_SHARE * self._step_seconds / parts
        self._last_trained = [piece.name for piece in found if piece.weight_shapes()][-1]

    def conventions(self) -> Conventions:
        return EXACT

    def load(self, images: Array, labels: Array) -> None:  # noqa: ARG002
        self._streams = False

    def open_stream(self, stream: Stream) -> None:  # noqa: ARG002
        self._streams = True
        self.sample_kind = "block"

    def reset(self) -> None:
        self._steps = 0

    def start_from(self, weights: Weights) -> None:
        pass

    def training_state(self) -> Weights:
        return {"steps": np.array(self._steps)}

    def go_on_from(self, state: Weights) -> None:
        self._steps = int(state["steps"])

    def run_steps(self, first: int, n: int) -> float:  # noqa: ARG002
        self._calls += 1
        if self._calls > CALLS_BEFORE_ACCIDENT:
            self._accident()
        self._steps += n
        self._all_steps += n
        waiting = WAITING_SECONDS if self._streams else 0.0
        uneven = STEP_SECONDS if "uneven" in self._variants else 0.0
        return self._played(self._step_seconds + waiting + uneven, n)

    def run_steps_apart(self, first: int, n: int) -> float:
        return (1 - EXCHANGE_SHARE) * self.run_steps(first, n)

    def _played(self, seconds: float, n: int) -> float:
        """Seconds of n of these in this process."""
        slowness = self._process_factor * (2 if "slow" in self._variants else 1)
        return sum(seconds * slowness * (1 + STEP_NOISE * self._random.uniform(-1, 1)) for _ in range(n))

    def loss(self) -> float:
        """From log(10), a guess among ten classes, down to a half of it."""
        for variant, steps in STEPS_BEFORE_NAN.items():
            if variant in self._variants and self._steps > steps:
                return math.nan
        return math.log(10) * (0.5 + 0.5 * math.exp(-(self._steps - 1) / 100))

    def correct(self, images: Array, labels: Array) -> int:  # noqa: ARG002
        """More with every step, up to all."""
        return round(len(labels) * self._steps / (self._steps + STEPS_TO_HALF_RIGHT))

    def snapshot(self, step: int) -> Snapshot:
        raise NotImplementedError("the fake engine does no arithmetic: it has no gradients to show")

    def draw_batches(self, first: int, n: int) -> float:  # noqa: ARG002
        return n * DRAWING_SECONDS

    def waited(self) -> float | None:
        return self._all_steps * WAITING_SECONDS if self._streams else None

    def collected(self) -> Collected:
        return Collected(self._all_steps * COLLECTION_SECONDS, self._all_steps // STEPS_OF_A_SWEEP)

    def count_allocations(self, first: int, n: int) -> Allocations:
        self._refuse_counting()
        self.run_steps(first, n)
        return Allocations(host=ALLOCATED)

    def allocation_places(self, first: int, n: int) -> Places:
        self._refuse_counting()
        self.run_steps(first, n)
        return PLACES

    def unseen_natively(self) -> str:
        self._refuse_counting()
        return ""

    def _refuse_counting(self) -> None:
        if "uncountable" in self._variants:
            raise RuntimeError("the fake profiler does not start")

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:  # noqa: ARG002
        names: list[Part] = ["forward", *(gradient.part for gradient in piece.gradients())]
        seconds = dict.fromkeys([*names, "activation"] if piece.activated else names, self._part_seconds)
        for gradient in piece.gradients():
            seconds[gradient.part] *= 1 + gradient.contains_data_gradient
        if "uneven" in self._variants and piece.name == self._last_trained:
            seconds[names[-1]] += STEP_SECONDS
        return {part: Replayed(self._stopwatch(value)) for part, value in seconds.items()}

    def replay_step(self) -> Mapping[Part, Replayed]:
        return {part: Replayed(self._stopwatch(value)) for part, value in STEP_PARTS.items()}

    def _stopwatch(self, seconds: float) -> Callable[[int], float]:
        return lambda n: self._played(seconds, n)

    def close(self) -> None:
        pass

    def _accident(self) -> None:
        if "crash" in self._variants:
            if self._rank.count > 1 and self._rank.number == 0:
                threading.Event().wait()  # for what another rank owes it
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hungry" in self._variants and self._calls == CALLS_BEFORE_HUNGER:
            self._eaten = [bytes([1]) * (64 << 20) for _ in range(MOST_EATEN // (64 << 20))]
        if "hang" in self._variants:
            threading.Event().wait()
        if "garbage" in self._variants:
            os.write(int(os.environ["POLYBENCH_ANSWERS_FD"]), b"this is no message\n")
