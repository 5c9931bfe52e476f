"""The calls to a worker: one function signature each, which parent and worker share.

`calls.run_steps(0, 5)` is a request. `WorkerProcess` sends it, the method of `worker.handler.Worker` with the
same name answers it, and the answer has the signature's type. Requests and replies are lines of JSON on two
pipes. They never contain tensors; they name the files that hold them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from polybench.data.batch_files import EpochFile, PipelineFiles
from polybench.engines.job import SINGLE_RANK, EngineInfo, Job, NumericalConventions, Rank
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.options import NaturalInt, Number, Seconds
from polybench.schema.resources import Allocations, BlockMeasured, Memory, MemoryInUse, NativeAllocation
from polybench.schema.result import Startup

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT")


class Loaded(msgspec.Struct, frozen=True):
    """Versions and devices of the framework; `code` is that of `protocol.loaded_code`, and differs between builds."""

    info: EngineInfo
    code: dict[str, str] = {}


class Prepared(msgspec.Struct, frozen=True):
    """Startup times, and `losses` of the warm-up steps; `engines.base.Engine` describes the other fields.

    `program` is its text, "" for an engine without one.
    """

    startup: Startup
    timing_resolution: Literal["step", "block"]
    has_call_overhead: bool
    conventions: NumericalConventions
    losses: list[float]
    program: str = ""


class Calibrated(msgspec.Struct, frozen=True):
    """Seconds per step before the first round, as in `BlockMeasured`, and the memory in use if a source counts it."""

    step_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    memory_in_use: MemoryInUse | None = None


class Trained(msgspec.Struct, frozen=True):
    """Seconds of all steps, and the loss of the last one."""

    seconds: Seconds
    loss: float


class Evaluated(msgspec.Struct, frozen=True):
    """Fraction of the predictions that are correct, and the mean of their losses; see `engines.base.Evaluation`."""

    accuracy: float
    loss: float | None
    """None if it is not finite."""


class AllocationsCounted(msgspec.Struct, frozen=True):
    """Memory and allocations of the steps."""

    memory: Memory
    allocations: Allocations


class PipelineAndTrainingTimed(msgspec.Struct, frozen=True):
    """Seconds per step of the input pipeline alone and of training alone."""

    pipeline_seconds: Seconds
    training_seconds: Seconds


class OperationTime(msgspec.Struct, frozen=True):
    """Seconds of an operation, without garbage collection, and seconds of garbage collection meanwhile.

    `layers` are indices in `networks.timed_layers.split_layers(model)`: none for the whole step, several if only the
    sum of these layers is known.
    """

    layers: tuple[NaturalInt, ...]
    operation: Operation
    seconds: Number
    gc_seconds: Number | None


class NumpyKernels(msgspec.Struct, frozen=True):
    """Products of square float32 matrices, and STREAM's triad of arrays of `triad_bytes`; null skips it."""

    sizes: tuple[int, ...]
    triad_bytes: int | None
    threads: int
    repeats: int


class NumpyTimes(msgspec.Struct, frozen=True):
    """Median seconds of the product of each size, and of the triad."""

    products: list[float]
    triad: float | None


class Call(Generic[P, AnswerT]):
    """A call of the table: its name, its arguments (a `msgspec.Struct`) and the type of its answer."""

    def __init__(self, signature: Callable[P, AnswerT]) -> None:
        self.name = signature.__name__
        types = get_type_hints(signature, include_extras=True)
        self.answers = msgspec.json.Decoder(types.pop("return"))
        defaults = [(one.default,) for one in inspect.signature(signature).parameters.values()]
        fields = [
            (name, kind, *default) if default != (inspect.Parameter.empty,) else (name, kind)
            for (name, kind), default in zip(types.items(), defaults, strict=True)
        ]
        self.arguments = msgspec.defstruct(self.name, fields, frozen=True)
        CALLS[self.name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Request[AnswerT]:
        """Return the request with these arguments."""
        return Request(self, self.arguments(*args, **kwargs))


class Request(NamedTuple, Generic[AnswerT]):
    """A call with its arguments."""

    call: Call[..., AnswerT]
    arguments: Any


CALLS: dict[str, Call[..., Any]] = {}
"""The table below, by name."""

# The table of calls. Paths name `.npz` files of tensors in the canonical layout.


# Import the engine's framework, or the user's program at a path, and report its versions and devices.
@Call
def load(factory: str, rank: Rank = SINGLE_RANK, program: str | None = None) -> Loaded: ...
# List the code that is loaded by now; frameworks import some of it late.
@Call
def list_code() -> dict[str, str]: ...
# Build the job, load its batches, run untimed steps. With `pipeline`, batches come from the engine's input
# pipeline, and calls that need preloaded batches use `epoch`.
@Call
def prepare(
    job: Job, weights: str, epoch: EpochFile, warmup_steps: int = 0, pipeline: PipelineFiles | None = None
) -> Prepared: ...
# Write gradients and weights at batch `step` to files, and return the loss; null if it is not finite.
@Call
def take_snapshot(step: int, gradients: str, weights: str) -> float | None: ...
# Write the pipeline's batch of one step to a file.
@Call
def write_batch(step: int, path: str) -> None: ...
# Run untimed steps, and return the loss of the last one; null if it is not finite, or after a forward pass.
@Call
def run_steps(first_step: int, steps: int) -> float | None: ...
# Name the tensors of float64 in a training in float32.
@Call
def find_float64() -> list[str]: ...
# Run the steps before the first round, whose times choose the length of timing blocks, and read the memory in use.
@Call
def calibrate(steps: int) -> Calibrated: ...
# Measure the timing block of one round: reset, two untimed steps, `steps` timed ones. The injected delay is a fraction
# of a step.
@Call
def measure_block(steps: int, injected_delay: float = 0.0) -> BlockMeasured: ...
# Measure the memory of the steps, then count their allocations, without timing.
@Call
def count_allocations(steps: int) -> AllocationsCounted: ...
# Trace what the steps request from the C library and the kernel. Later times of this process would be wrong.
@Call
def trace_native_allocations(steps: int) -> NativeAllocation: ...
@Call
def list_allocation_sites(steps: int) -> AllocationProfile: ...
# Time the pipeline without training, then training on preloaded batches, which the engine then keeps.
@Call
def time_pipeline_and_training(steps: int) -> PipelineAndTrainingTimed: ...
# Return the shortest seconds per step with and without the all-reduce; null if it cannot be left out.
@Call
def time_allreduce(steps: int) -> tuple[Seconds, Seconds] | None: ...
# Return to step 0 and use these initial weights from now on.
@Call
def reset_training(weights: str) -> None: ...
# Continue training, and time all steps together.
@Call
def train(first_step: int, steps: int) -> Trained: ...
# Write everything that the next step depends on to a file. Return the error; "" on success.
@Call
def save_training(path: str) -> str: ...
# Load a training that another process with the same versions has saved.
@Call
def restore_training(path: str) -> None: ...
# Evaluate the test images, which the file holds as one batch.
@Call
def evaluate(test: EpochFile) -> Evaluated: ...
# Write the running statistics after step `step` at the current weights. Only the reference engine does this.
@Call
def write_statistics(step: int, path: str) -> None: ...
# Write the logits of all batches, in inference mode, to a file. Only the reference engine does this.
@Call
def write_logits(epoch: EpochFile, path: str) -> None: ...
# Write the logits of the last step, in a forward pass.
@Call
def write_step_logits(path: str) -> None: ...
# Write each layer's input and the gradient of its output to files in `folder`. Only the reference engine does this.
@Call
def write_layer_tensors(folder: str) -> None: ...
# Build each layer alone, from weights and layer tensors, and run every operation once.
@Call
def build_layer_ops(weights: str, folder: str) -> None: ...
# Build these layers, each with its own batch size, from random tensors instead.
@Call
def build_standalone_ops(layers: list[tuple[TimedLayer, int]]) -> None: ...
# Time every operation that was built.
@Call
def time_layer_ops(repeats: int) -> list[OperationTime]: ...
# Time NumPy, without an engine.
@Call
def time_numpy(kernels: NumpyKernels) -> NumpyTimes: ...
# End the process.
@Call
def close() -> None: ...


class Answer(msgspec.Struct, Generic[AnswerT], frozen=True, tag="answer"):
    """The answer to a call."""

    call: str
    value: AnswerT


class NotAvailable(msgspec.Struct, frozen=True, tag="not_available"):
    """This machine lacks the engine or the device; see `errors.EngineUnavailable`."""

    reason: str
    hint: str


class RequestFailed(msgspec.Struct, frozen=True, tag="request_failed"):
    """The request raised an exception; the worker's log has the traceback."""

    reason: str


Reply = Answer[Any] | NotAvailable | RequestFailed

_request_decoder = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_reply_decoder = msgspec.json.Decoder(Answer[msgspec.Raw] | NotAvailable | RequestFailed)


def encode(message: Request[Any] | Reply) -> bytes:
    """Encode a message as a line."""
    content = (message.call.name, message.arguments) if isinstance(message, Request) else message
    return msgspec.json.encode(content) + b"\n"


def decode_request(line: bytes) -> Request[Any]:
    """Decode a line from the parent."""
    name, arguments = _request_decoder.decode(line)
    return Request(CALLS[name], msgspec.json.decode(arguments, type=CALLS[name].arguments))


def decode_reply(line: bytes) -> Reply:
    """Decode a line from a worker; raises `msgspec.DecodeError` unless the answer has its call's type."""
    reply: Reply = _reply_decoder.decode(line)
    if isinstance(reply, Answer) and reply.call in CALLS:
        return Answer(reply.call, CALLS[reply.call].answers.decode(reply.value))
    return reply
