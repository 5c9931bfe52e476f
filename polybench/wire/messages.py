"""What parent and worker say to each other: one JSON object a line, over two pipes.

Tensors never travel in a message; a message names the file that holds them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations, Memory, NativeAllocation
from polybench.core.document.times import Startup
from polybench.core.job import ALONE, Collected, Conventions, Job, Probe, Rank
from polybench.data.epoch import EpochFile
from polybench.data.stream import StreamFile
from polybench.wire.layer_messages import (
    LayersOpened,
    LayersTimed,
    LayersWritten,
    OpenLayers,
    TimeLayers,
    WriteLayers,
)
from polybench.wire.limit_messages import NumpyTimed, OpenAlone, TimeNumpy
from polybench.wire.replica_messages import ExchangeTimed, Seconds, TimeExchange
from polybench.wire.training_messages import GoOn, KeepTraining, TrainingKept


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Import the engine's framework and say what it can do. Answer: Loaded."""

    factory: str
    rank: Rank = ALONE


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Build the job, load its batches, take `warm_up` untimed steps. Answer: Prepared.

    With a `stream`, batches come from the engine's input pipeline; `epoch` is for what is asked without it.
    """

    job: Job
    weights: str
    epoch: EpochFile
    warm_up: int = 0
    stream: StreamFile | None = None


class TakeSnapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """Loss, gradients and weights at batch `step`. Answer: SnapshotTaken.

    Tensors go to `gradients` and `weights`, both `.npz` in the canonical layout.
    """

    step: int
    gradients: str
    weights: str


class TakeBatch(msgspec.Struct, frozen=True, tag="take_batch"):
    """Write what the pipeline gives to step `step`, canonical, to an `.npz` file. Answer: BatchWritten."""

    step: int
    path: str


class Advance(msgspec.Struct, frozen=True, tag="advance"):
    """Train `n` steps from `first`, untimed. Answer: Advanced."""

    first: int
    n: int


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """One block of one round: reset, two untimed steps, `steps` timed ones. Answer: Measured."""

    steps: int
    handicap: float = 0.0


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """Back to step 0, from these initial weights (`.npz`, canonical) from now on. Answer: Advanced."""

    weights: str


class Train(msgspec.Struct, frozen=True, tag="train"):
    """Go on training, `n` steps from `first`, timed as a whole. Answer: Trained."""

    first: int
    n: int


class Evaluate(msgspec.Struct, frozen=True, tag="evaluate"):
    """Classify the test images, all in one batch of the file, with the current weights. Answer: Evaluated."""

    test: EpochFile


class Count(msgspec.Struct, frozen=True, tag="count"):
    """The memory of `steps` steps, then their allocations; nothing is timed. Answer: Counted."""

    steps: int


class CountNative(msgspec.Struct, frozen=True, tag="count_native"):
    """What `steps` steps ask of the C library and the kernel; nothing is timed, now or later.

    Answer: NativeCounted, or Missing where memray is not installed.
    """

    steps: int


class FindPlaces(msgspec.Struct, frozen=True, tag="find_places"):
    """Who allocates in `steps` steps; nothing is timed. Answer: PlacesFound."""

    steps: int


class TimeSeparately(msgspec.Struct, frozen=True, tag="time_separately"):
    """Time blocks of `steps` steps of the pipeline without training, then the reverse.

    Answer: TimedSeparately.

    From then on the engine trains on preloaded batches.
    """

    steps: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    """End the process. Answer: Closed."""


Request = (
    Load
    | Prepare
    | TakeSnapshot
    | TakeBatch
    | Advance
    | Measure
    | Count
    | CountNative
    | FindPlaces
    | TimeSeparately
    | Restart
    | Train
    | KeepTraining
    | GoOn
    | Evaluate
    | WriteLayers
    | OpenLayers
    | TimeLayers
    | OpenAlone
    | TimeNumpy
    | TimeExchange
    | Close
)


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """What the framework is and can do here; `code` tells what was loaded from another build of it."""

    probe: Probe
    code: str = ""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """`losses` are those of the warm-up steps; for the others see `engines.base.Engine`."""

    startup: Startup
    sample_kind: Literal["step", "block"]
    calls_cost: bool
    conventions: Conventions
    losses: list[float]


class SnapshotTaken(msgspec.Struct, frozen=True, tag="snapshot_taken"):
    """`loss` is null when it is not finite: JSON has no number for that."""

    loss: float | None


class BatchWritten(msgspec.Struct, frozen=True, tag="batch_written"):
    """The batch is written."""


class Advanced(msgspec.Struct, frozen=True, tag="advanced"):
    """The steps are done."""


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """`step_seconds` has one entry a sample; `collected` and `waited_seconds` are of the timed steps.

    `call_seconds` is of one call of the engine, see `worker.timed.Block`.
    """

    step_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    steps_per_sample: Annotated[int, Meta(ge=1)]
    peak_rss_bytes: int
    collected: Collected | None = None
    waited_seconds: float | None = None
    call_seconds: float | None = None


class Trained(msgspec.Struct, frozen=True, tag="trained"):
    """Seconds of all these steps, and the loss of the last."""

    seconds: Seconds
    loss: float


class Evaluated(msgspec.Struct, frozen=True, tag="evaluated"):
    """The share of the images that was classified rightly."""

    accuracy: float


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """What the steps took, while nothing was timed."""

    memory: Memory
    allocations: Allocations


class NativeCounted(msgspec.Struct, frozen=True, tag="native_counted"):
    """What the steps asked for."""

    allocation: NativeAllocation


class PlacesFound(msgspec.Struct, frozen=True, tag="places_found"):
    """All that the engine's source tells."""

    places: Places


class TimedSeparately(msgspec.Struct, frozen=True, tag="timed_separately"):
    """Seconds of one step."""

    pipeline_seconds: Seconds
    training_seconds: Seconds


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The last answer: the process ends."""


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """This machine cannot run the engine or the device; see core.errors.Unavailable."""

    reason: str
    remedy: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request raised; the traceback is in the worker's log."""

    reason: str


Answer = (
    Loaded
    | Prepared
    | SnapshotTaken
    | BatchWritten
    | Advanced
    | Measured
    | Counted
    | NativeCounted
    | PlacesFound
    | TimedSeparately
    | Trained
    | TrainingKept
    | Evaluated
    | LayersWritten
    | LayersOpened
    | LayersTimed
    | NumpyTimed
    | ExchangeTimed
    | Closed
    | Missing
    | Failed
)

encoder = msgspec.json.Encoder()
request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
answer_decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def tag(message: Request | Answer) -> str:
    """What a message is called on the wire."""
    return str(type(message).__struct_config__.tag)
