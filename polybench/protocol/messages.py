"""Requests and responses between parent and worker: one JSON object per line, over two pipes.

Messages never contain tensors; they name the files that hold them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polybench.data.batch_files import EpochFile, PipelineFiles
from polybench.engines.job import SINGLE_RANK, EngineInfo, GcStats, Job, NumericalConventions, Rank
from polybench.protocol.allreduce_messages import AllReduceTimed, Seconds, TimeAllReduce
from polybench.protocol.layer_messages import (
    BuildLayerOps,
    LayerOpsBuilt,
    LayerOpsTimed,
    LayerTensorsWritten,
    TimeLayerOps,
    WriteLayerTensors,
)
from polybench.protocol.peak_messages import BuildStandaloneOps, NumpyTimed, TimeNumpy
from polybench.protocol.training_messages import RestoreTraining, SaveTraining, TrainingSaved
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations, Memory, NativeAllocation
from polybench.schema.result import Startup


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Import the engine's framework and report its versions and devices. Response: Loaded."""

    factory: str
    rank: Rank = SINGLE_RANK


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Build the job, load its batches, run `warmup_steps` untimed steps. Response: Prepared.

    With `pipeline`, batches come from the engine's input pipeline; requests that need preloaded batches then
    use `epoch`.
    """

    job: Job
    weights: str
    epoch: EpochFile
    warmup_steps: int = 0
    pipeline: PipelineFiles | None = None


class TakeSnapshot(msgspec.Struct, frozen=True, tag="take_snapshot"):
    """Compute loss, gradients and weights at batch `step`. Response: SnapshotTaken.

    The worker writes tensors to the files `gradients` and `weights`, `.npz` in the canonical layout.
    """

    step: int
    gradients: str
    weights: str


class WriteBatch(msgspec.Struct, frozen=True, tag="write_batch"):
    """Write the pipeline's batch of one step, canonical, to an `.npz` file. Response: BatchWritten."""

    step: int
    path: str


class RunSteps(msgspec.Struct, frozen=True, tag="run_steps"):
    """Run untimed training steps. Response: Done."""

    first_step: int
    steps: int


class MeasureBlock(msgspec.Struct, frozen=True, tag="measure_block"):
    """Measure the timing block of one round: reset, two untimed steps, `steps` timed steps.

    Response: BlockMeasured. `injected_delay` is a fraction of a step.
    """

    steps: int
    injected_delay: float = 0.0


class ResetTraining(msgspec.Struct, frozen=True, tag="reset_training"):
    """Return to step 0 and use these initial weights (`.npz`, canonical) from now on. Response: Done."""

    weights: str


class Train(msgspec.Struct, frozen=True, tag="train"):
    """Continue training, and time all `steps` steps together. Response: Trained."""

    first_step: int
    steps: int


class Evaluate(msgspec.Struct, frozen=True, tag="evaluate"):
    """Classify the test images, which the file holds as one batch. Response: Evaluated."""

    test: EpochFile


class CountAllocations(msgspec.Struct, frozen=True, tag="count_allocations"):
    """Measure the memory of `steps` steps, then count their allocations, without timing.

    Response: AllocationsCounted.
    """

    steps: int


class TraceNativeAllocations(msgspec.Struct, frozen=True, tag="trace_native_allocations"):
    """Trace what `steps` steps request from the C library and the kernel.

    Response: NativeAllocationsTraced, or NotAvailable without memray. Later times of this process would be
    wrong.
    """

    steps: int


class ListAllocationSites(msgspec.Struct, frozen=True, tag="list_allocation_sites"):
    """List the allocation sites of `steps` steps, without timing. Response: AllocationSitesListed."""

    steps: int


class TimePipelineAndTraining(msgspec.Struct, frozen=True, tag="time_pipeline_and_training"):
    """Time `steps` batches of the pipeline without training, then `steps` steps without the pipeline.

    Response: PipelineAndTrainingTimed. Afterwards the engine trains on preloaded batches.
    """

    steps: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    """End the process. Response: Closed."""


Request = (
    Load
    | Prepare
    | TakeSnapshot
    | WriteBatch
    | RunSteps
    | MeasureBlock
    | CountAllocations
    | TraceNativeAllocations
    | ListAllocationSites
    | TimePipelineAndTraining
    | ResetTraining
    | Train
    | SaveTraining
    | RestoreTraining
    | Evaluate
    | WriteLayerTensors
    | BuildLayerOps
    | TimeLayerOps
    | BuildStandaloneOps
    | TimeNumpy
    | TimeAllReduce
    | Close
)


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """Versions and devices of the framework.

    `code_fingerprint` differs between two builds of the same version.
    """

    info: EngineInfo
    code_fingerprint: str = ""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """Startup times, and `losses` of the warm-up steps; `engines.base.Engine` describes the other fields."""

    startup: Startup
    timing_resolution: Literal["step", "block"]
    has_call_overhead: bool
    conventions: NumericalConventions
    losses: list[float]


class SnapshotTaken(msgspec.Struct, frozen=True, tag="snapshot_taken"):
    """`loss` is null if it is not finite, which JSON cannot express."""

    loss: float | None


class BatchWritten(msgspec.Struct, frozen=True, tag="batch_written"):
    """Confirms that the batch is written."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Confirms that the request is done."""


class BlockMeasured(msgspec.Struct, frozen=True, tag="block_measured"):
    """Times of a timing block; see `worker.timing_loop.BlockTimes`.

    `step_times` has one value per step, or one per block if the engine cannot time single steps.
    """

    step_times: Annotated[list[Seconds], Meta(min_length=1)]
    steps_per_value: Annotated[int, Meta(ge=1)]
    peak_rss_bytes: int
    gc_stats: GcStats | None = None
    data_wait_seconds: float | None = None
    call_overhead_seconds: float | None = None


class Trained(msgspec.Struct, frozen=True, tag="trained"):
    """Seconds of all steps, and the loss of the last one."""

    seconds: Seconds
    loss: float


class Evaluated(msgspec.Struct, frozen=True, tag="evaluated"):
    """Fraction of the images that the network classified correctly."""

    accuracy: float


class AllocationsCounted(msgspec.Struct, frozen=True, tag="allocations_counted"):
    """Memory and allocations of the steps."""

    memory: Memory
    allocations: Allocations


class NativeAllocationsTraced(msgspec.Struct, frozen=True, tag="native_allocations_traced"):
    """Native allocations of the steps."""

    allocation: NativeAllocation


class AllocationSitesListed(msgspec.Struct, frozen=True, tag="allocation_sites_listed"):
    """Allocation sites that the engine's profiler reports."""

    profile: AllocationProfile


class PipelineAndTrainingTimed(msgspec.Struct, frozen=True, tag="pipeline_and_training_timed"):
    """Seconds per step of each."""

    pipeline_seconds: Seconds
    training_seconds: Seconds


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """Confirms that the process ends; the last response."""


class NotAvailable(msgspec.Struct, frozen=True, tag="not_available"):
    """This machine lacks the engine or the device; see `errors.EngineUnavailable`."""

    reason: str
    hint: str


class RequestFailed(msgspec.Struct, frozen=True, tag="request_failed"):
    """The request raised an exception; the worker's log has the traceback."""

    reason: str


Response = (
    Loaded
    | Prepared
    | SnapshotTaken
    | BatchWritten
    | Done
    | BlockMeasured
    | AllocationsCounted
    | NativeAllocationsTraced
    | AllocationSitesListed
    | PipelineAndTrainingTimed
    | Trained
    | TrainingSaved
    | Evaluated
    | LayerTensorsWritten
    | LayerOpsBuilt
    | LayerOpsTimed
    | NumpyTimed
    | AllReduceTimed
    | Closed
    | NotAvailable
    | RequestFailed
)

encoder = msgspec.json.Encoder()
request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
response_decoder: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)


def message_name(message: Request | Response) -> str:
    """Return the tag of a message."""
    return str(type(message).__struct_config__.tag)
