"""What crosses the wire between parent and worker: the job of an engine, and what it learns of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from polybench.core.model import Model
from polybench.core.spec import Workload


class Conventions(msgspec.Struct, frozen=True):
    """Where an engine, by design, computes something else than the exact rule.

    `max_pool_within`: the gradient of a max-pool goes to the first value of the window (width
    fastest) that is within this relative distance of the maximum; 0 is the exact rule, the first maximum.
    `running_variance`: the batch's variance that enters batch norm's running variance is divided by n - 1
    ("unbiased", taken for the rule) or by n.
    `batch_norm_sums`: batch norm adds up a channel's pixels in float32, in this many running sums, pixel i in
    sum i modulo their number; 0 is the exact sum.
    `relu_at_zero`: the derivative of ReLU at 0, where it has none: 0 is taken for the rule.
    `sources` says by rule where that can be read in the engine's own code.
    """

    max_pool_within: float = 0.0
    running_variance: Literal["unbiased", "biased"] = "unbiased"
    batch_norm_sums: int = 0
    relu_at_zero: float = 0.0
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

PINNED = "POLYBENCH_PINNED"
"""Environment of a worker that is bound to CPUs: their numbers, separated by commas."""


RANKS = "POLYBENCH_RANKS"
"""Environment of a worker that trains with others, which it starts: the CPUs of each, itself first, as
PINNED has them, separated by semicolons."""


class Rank(msgspec.Struct, frozen=True):
    """One of `count` processes that train one network, each on its part of every batch.

    They find each other by the file `meeting`, which nobody else knows of.
    """

    number: int
    count: int
    meeting: str

    def part(self, batch_size: int) -> slice:
        """Its samples of a batch, which `count` divides."""
        each = batch_size // self.count
        return slice(self.number * each, (self.number + 1) * each)


ALONE = Rank(0, 1, "")


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
    `engines.support.dropout_masks` for this `seed` and each step.
    """

    model: Model
    workload: Workload
    device: str
    dtype: Literal["float32", "float64"]
    variants: tuple[str, ...] = ()
    conventions: Conventions = EXACT
    dropout: Literal["own", "given"] = "own"
    seed: int = 0


class Collected(msgspec.Struct, frozen=True):
    """What a garbage collector has done: seconds that the program waited for it, and full sweeps."""

    seconds: float
    full_sweeps: int

    def __sub__(self, earlier: Collected) -> Collected:
        return Collected(self.seconds - earlier.seconds, self.full_sweeps - earlier.full_sweeps)
