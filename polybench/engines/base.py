"""The Engine protocol: the few things that a framework must be able to do to be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from polybench.core.document.layers import Part
from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.errors import Unavailable
from polybench.core.job import Collected, Conventions, Job, Probe, Rank
from polybench.core.pieces import Piece

Array = NDArray[Any]


Weights = Mapping[str, Array]
"""`layer_name.weight` and the like, see `core.model.Model.tensor_shapes` -> array in the canonical layout."""


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


class LayerTensors(NamedTuple):
    """What one layer computes in a training step, canonical.

    Attributes:
        x: what goes in.
        dy: the gradient of the loss with respect to what comes out.
        y: what comes out.
        dx: the gradient of x.
        gradients: those of the weights, by part (`weight`).
    """

    x: Array
    dy: Array
    y: Array
    dx: Array
    gradients: Weights


class Replayed(NamedTuple):
    """A part of a layer or of the step that can be timed alone.

    Attributes:
        run: does it n times and returns the seconds of all, the device synchronized before the clock stops.
        empty: the same way of asking for something that costs nothing, where whole steps do not ask like
            that: its seconds are the replay's own, and are taken off.
    """

    run: Callable[[int], float]
    empty: Callable[[int], float] | None = None


class Engine(Protocol):
    """One framework in one process. Methods are called in the order in which they are written here.

    Constructing an engine must not import its framework: `load_framework` does, and is timed.
    """

    sample_kind: Literal["step", "block"]
    """"block" when steps can only be timed together: a sample is then the mean of a block."""

    calls_cost: bool = False
    """Whether each call of `run_steps` costs its users something of its own: an epoch is then one call."""

    def load_framework(self) -> None:
        """Import the framework and set its thread pools.

        Raises:
            Unavailable: with the reason and the remedy.
        """
        ...

    def join(self, rank: Rank) -> None:
        """Train with other processes from `build` on, each on its part of every batch, which it is given.

        Gradients and losses are means over all of them; `reset`, `run_steps`, `loss` and `snapshot` are
        called in all at the same time.

        Raises:
            NotImplementedError: its row has no replicas that are processes.
        """
        raise NotImplementedError

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
            images: (steps, batch, *input_shape), float32 in 0..1, or int32 tokens; C order, read-only.
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

    def training_state(self) -> Weights:
        """Copies of all that the next step depends on besides its batch, of any names, shapes and types.

        That is weights and running statistics, the optimizer's state, the generator of dropout. It is for
        `go_on_from` of the same job in another process of the same versions. None of it: this engine's
        trainings cannot go on there.
        """
        return {}

    def go_on_from(self, state: Weights) -> None:
        """Put what `training_state` gave back, after `reset` and at least one step in this process."""
        raise NotImplementedError

    def run_steps(self, first: int, n: int) -> float:
        """Train on batches first, first + 1, ... (modulo the loaded steps), each at its rate: the hot loop.

        Returns:
            Wall seconds of the n steps, the device synchronized before the clock stops.
        """
        ...

    def run_steps_apart(self, first: int, n: int) -> float | None:  # noqa: ARG002
        """The same without the exchange of gradients between replicas; None where it cannot be left out."""
        return None

    def loss(self) -> float:
        """The loss that the last step of `run_steps` computed (before its update)."""
        ...

    def correct(self, images: Array, labels: Array) -> int:
        """How many images the current weights classify rightly: the largest logit is the label's.

        As at inference: no dropout, batch norm with its running statistics. Changes nothing.

        Args:
            images: (n, *input_shape), as in `load`; any n, whatever the training's batch size.
            labels: (n,), int64.
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

    def wait_until_idle(self) -> None:
        """A request is answered: return when nothing of this engine runs on, for others are measured now."""

    def collected(self) -> Collected | None:
        """What the garbage collector of the engine's own language did so far; None without one.

        It is read at both ends of timed steps, so it must cost next to nothing.
        """
        return None

    def collect(self) -> None:
        """Collect all garbage of the engine's own language, so that nobody's pays for somebody else's."""

    def count_allocations(self, first: int, n: int) -> Allocations:  # noqa: ARG002
        """Train as `run_steps` does, and count what that allocates: means of a step. Never timed.

        Empty is what no source can see; each number says where it is from and what it covers.
        """
        return Allocations()

    def allocation_places(self, first: int, n: int) -> Places:  # noqa: ARG002
        """Train as `run_steps` does, and tell which operators or functions allocate. Never timed.

        Raises:
            Unavailable: no source tells it.
        """
        raise Unavailable(
            "nothing tells where this engine allocates",
            "polybench compare --columns native_allocated counts what it allocates in all",
        )

    def unseen_natively(self) -> str:
        """What a step has from pools that need not ask the C library or the kernel, in words; or ""."""
        return ""

    def layer_tensors(self, step: int) -> list[LayerTensors]:
        """What each layer computes at batch `step` at the current weights: the reference only.

        In the order of `model.activations()`; nothing changes. A residual block is here the sum at its end,
        x + x of what its body puts out.
        """
        raise NotImplementedError

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:  # noqa: ARG002
        """Build one piece of the network alone, as `build` builds it, so that its parts can be timed.

        A gradient is computed as in a training step, from what the forward pass kept for it.

        Args:
            piece: of the job's model, or of any other.
            weights: all of `piece.tensor_shapes()`, canonical.
            x: (batch, *piece.input_shape), float32, or int32 tokens.
            dy: the gradient of the loss with respect to what comes out, behind the ReLU; float32.

        Returns:
            "forward", the parts in `piece.gradients()`, and "activation" where it has one. A gradient with
            respect to data and weights computes both, as one call of the framework does.

        Raises:
            Unavailable: the step is compiled or replayed as a whole, so a layer has no time of its own.
        """
        raise Unavailable("this engine cannot run a layer alone", "its whole step is timed all the same")

    def replay_step(self) -> Mapping[Part, Replayed]:
        """The parts of a step that belong to no layer: "loss", "update", and a "call" that does nothing."""
        return {}

    def device_peak_bytes(self) -> int | None:
        """The most bytes that this engine's allocator ever had in use on its GPU; None on the CPU."""
        return None

    def startup_detail(self) -> dict[str, float]:
        """Parts of the startup in seconds, and `cached_code` (1) where an earlier process compiled for it."""
        return {}

    def close(self) -> None: ...
