"""The Engine protocol: the few things that a framework must be able to do to be measured."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import Unavailable
from polybench.core.layers import Layer
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.results import Allocations
from polybench.core.spec import Workload

Array = NDArray[Any]
Weights = Mapping[str, Array]
"""`layer_name.weight` and the like, see `core.model.Model.tensor_shapes` -> array in the canonical layout."""


class Conventions(msgspec.Struct, frozen=True):
    """Where an engine, by design, computes something else than the exact rule.

    `max_pool_within`: the gradient of a max-pool goes to the first value of the window (width
    fastest) that is within this relative distance of the maximum; 0 is the exact rule, the first maximum.
    `running_variance`: the batch's variance that enters batch norm's running variance is divided by n - 1
    ("unbiased", taken for the rule) or by n.
    `batch_norm_sums`: batch norm adds up a channel's pixels in float32, in this many running sums, pixel i in
    sum i modulo their number; 0 is the exact sum.
    `sources` says by rule where that can be read in the engine's own code.
    """

    max_pool_within: float = 0.0
    running_variance: Literal["unbiased", "biased"] = "unbiased"
    batch_norm_sums: int = 0
    sources: dict[str, str] = {}

    def alone(self) -> Iterator[tuple[str, Conventions]]:
        """Each declared rule by name, with all others exact."""
        for rule, value in msgspec.structs.asdict(self).items():
            if rule != "sources" and value != getattr(EXACT, rule):
                source = {rule: self.sources.get(rule, "")}
                yield rule, msgspec.structs.replace(EXACT, **{rule: value}, sources=source)


EXACT = Conventions()

COLD_START = "POLYBENCH_COLD_START"
"""Environment of a worker whose startup is reported as a user's own would be: where it is set, an engine uses
no compiled code that polybench kept from an earlier process."""


class Probe(msgspec.Struct, frozen=True):
    """What a process learns about an engine without training: versions, build, devices (`cpu`, `cuda:0`)."""

    versions: dict[str, str]
    build: dict[str, str]
    devices: tuple[str, ...]


class Job(msgspec.Struct, frozen=True):
    """All that an engine needs to know to build its training step.

    `dtype` is that of weights, activations and arithmetic. `variants` are the engine's own, sorted.
    `conventions` is followed by the `reference` engine only; the others have their own.
    `dropout` says whether masks come from the engine's own generator, as its users have it, or are those of
    `engines.dropout_masks` for this `seed` and each step.
    """

    model: Model
    workload: Workload
    device: str
    dtype: Literal["float32", "float64"]
    variants: tuple[str, ...] = ()
    conventions: Conventions = EXACT
    dropout: Literal["own", "given"] = "own"
    seed: int = 0


class Stream(NamedTuple):
    """What an input pipeline is made from; all arrays are read-only.

    Attributes:
        images: (N, channels, height, width) uint8, mapped.
        labels: (N,) int64.
        order: (steps, batch) int64, the images of each batch.
        decisions: (steps, batch, 3) int8: flip (left and right, 0 or 1), then dy, dx: the pixel at (y, x) is
            the flipped image's at (y + dy, x + dx), and 0 outside it. Neither is more than LARGEST_SHIFT.
            None varies nothing.
        workers: how many prepare batches; 0 does it in the thread that trains.
    """

    images: Array
    labels: Array
    order: Array
    decisions: Array | None
    workers: int


class Snapshot(NamedTuple):
    """Loss of one batch at the current weights, its gradients, and those weights; canonical, as computed.

    `gradients` has `model.weight_shapes()`, `weights` all of `model.tensor_shapes()`: last the state.
    """

    loss: float
    gradients: Weights
    weights: Weights


class Collected(msgspec.Struct, frozen=True):
    """What a garbage collector has done: seconds that the program waited for it, and full sweeps."""

    seconds: float
    full_sweeps: int

    def __sub__(self, earlier: Collected) -> Collected:
        return Collected(self.seconds - earlier.seconds, self.full_sweeps - earlier.full_sweeps)


class Engine(Protocol):
    """One framework in one process. Methods are called in the order in which they are written here.

    Constructing an engine must not import its framework: `load_framework` does, and is timed.
    """

    sample_kind: Literal["step", "block"]
    """"block" when steps can only be timed together: a sample is then the mean of a block."""

    def load_framework(self) -> None:
        """Import the framework and set its thread pools.

        Raises:
            Unavailable: with the reason and the remedy.
        """
        ...

    def probe(self) -> Probe: ...

    def build(self, job: Job, weights: Weights) -> None:
        """Make model, optimizer and training step, with these initial weights.

        Raises:
            Unavailable: the device is not there.
        """
        ...

    def conventions(self) -> Conventions:
        """The declared deviations of what `build` made."""
        ...

    def load(self, images: Array, labels: Array) -> None:
        """Put batches on the device in the engine's own layout.

        Args:
            images: (steps, batch, channels, height, width), float32 in 0..1, C order, read-only.
            labels: (steps, batch), int64.
        """
        ...

    def open_stream(self, stream: Stream) -> None:  # noqa: ARG002
        """Instead of `load`: draw batches from the framework's own input pipeline while training.

        A batch is float32 pixels in 0..1 (value / 255) of varied images. Reading batches in order never
        starts the pipeline anew; everything else may.

        How long a single step takes depends on how far the pipeline ran ahead in others, so `sample_kind` is
        "block" from here on.

        Raises:
            Unavailable: there is no such pipeline.
        """
        raise Unavailable("this engine has no input pipeline", "use --input preload")

    def reset(self) -> None:
        """Initial weights and zero optimizer state; nothing of this is timed."""
        ...

    def start_from(self, weights: Weights) -> None:
        """Take these as the initial weights, which `reset` goes back to; canonical, as in `build`."""
        ...

    def run_steps(self, first: int, n: int) -> float:
        """Train on batches first, first + 1, ... (modulo the loaded steps), each at its rate: the hot loop.

        Returns:
            Wall seconds of the n steps, the device synchronized before the clock stops.
        """
        ...

    def loss(self) -> float:
        """The loss that the last step of `run_steps` computed (before its update)."""
        ...

    def correct(self, images: Array, labels: Array) -> int:
        """How many images the current weights classify rightly: the largest logit is the label's.

        As at inference: no dropout, batch norm with its running statistics. Changes nothing.

        Args:
            images: (batch, channels, height, width), float32 in 0..1.
            labels: (batch), int64.
        """
        ...

    def snapshot(self, step: int) -> Snapshot:
        """Loss and gradients of step `step` at the current weights, without changing these or any state."""
        ...

    def batch(self, step: int) -> tuple[Array, Array]:
        """The batch that the pipeline of `open_stream` gives to step `step`, canonical: float32, int64."""
        raise NotImplementedError

    def draw_batches(self, first: int, n: int) -> float:
        """Take batches first, first + 1, ... from the pipeline, onto the device, and train on none.

        Returns:
            Wall seconds of the n batches.
        """
        raise NotImplementedError

    def waited(self) -> float | None:
        """Seconds that training has waited for its pipeline so far; None without one, or if nobody can tell.

        It is read at both ends of timed steps, so it must cost next to nothing.
        """
        return None

    def rest(self) -> None:
        """A request is answered: return when nothing of this engine runs on, for others are measured now."""

    def collected(self) -> Collected | None:
        """What the garbage collector of the engine's own language did so far; None without one.

        It is read at both ends of timed steps, so it must cost next to nothing.
        """
        return None

    def count_allocations(self, first: int, n: int) -> Allocations:  # noqa: ARG002
        """Train as `run_steps` does, and count what that allocates: means of a step. Never timed.

        Empty is what no source can see; each number says where it is from and what it covers.
        """
        return Allocations()

    def device_peak_bytes(self) -> int | None:
        """The most bytes that this engine's allocator ever had in use on its GPU; None on the CPU."""
        return None

    def startup_detail(self) -> dict[str, float]:
        """Parts of the startup in seconds, and `cached_code` (1) where an earlier process compiled for it."""
        return {}

    def close(self) -> None: ...


def at_rates(optimizer: Optimizer, first: int, n: int, set_rate: Callable[[float], None]) -> Iterator[int]:
    """The steps first, first + 1, ...; `set_rate` is called before the first and where the rate changes."""
    for steps, rate in optimizer.stretches(first, n):
        set_rate(rate)
        yield from steps


def as_dtype(weights: Weights, dtype: str) -> dict[str, Array]:
    """Contiguous copies of canonical weights in `dtype`."""
    return {name: np.array(value, dtype=dtype, order="C") for name, value in weights.items()}


def no_such_layer(engine: str, layer: Layer) -> Unavailable:
    """What to raise for a layer, or an option of it, that an engine cannot make yet."""
    return Unavailable(
        f"{engine} has no layer {layer.__struct_config__.tag} like {layer} in polybench yet",
        "choose another model",
    )


def import_framework(module: str, product: str, extra: str) -> ModuleType:
    """Import `module` of the framework `product`, which the extra `extra` of polybench installs.

    Raises:
        Unavailable: it is not installed, or it is and breaks while it is imported.
    """
    remedy = f"pip install 'polybench[{extra}]'"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise Unavailable(f"{product} is not installed", remedy) from None
        raise Unavailable(f"{product} is installed, but lacks a module: {error}", remedy) from error
    except (ImportError, OSError) as error:
        raise Unavailable(
            f"{product} is installed, but does not import: {error}", f"pip install --force-reinstall {module}"
        ) from error


def cuda_index(device: str, visible: int, *, cuda_build: bool, install: str) -> int:
    """The number of a CUDA device: 0 for `cuda`, 1 for `cuda:1`.

    Args:
        device: as in a Job.
        visible: how many CUDA devices the framework sees.
        cuda_build: whether this build of the framework has CUDA at all.
        install: the command that installs one which has.

    Raises:
        Unavailable: the device is not there. The reason is the first thing to mend: driver, build, device.
    """
    # The driver's control device; /dev/dxg is its counterpart in the Windows Subsystem for Linux.
    if not any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")):
        raise Unavailable("no NVIDIA driver", "use --devices cpu, or install the NVIDIA driver")
    if not cuda_build:
        raise Unavailable("the installed build has no CUDA", install)
    index = int(device.partition(":")[2] or 0)
    if index >= visible:
        raise Unavailable(
            f"no device {device}: {visible} CUDA devices visible",
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    return index


def touch(batches: Array) -> None:
    """Read one value of every page of a mapped file, so that no page fault is left for the timed steps.

    Args:
        batches: C order.
    """
    page_bytes = 4096
    batches.reshape(-1)[:: max(1, page_bytes // batches.itemsize)].sum()
