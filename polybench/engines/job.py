"""Records that the parent and a worker exchange: the job of an engine, and information about the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from polybench.networks.model import Model
from polybench.schema.options import Workload


class NumericalConventions(msgspec.Struct, frozen=True):
    """Numerical conventions of an engine that deviate, by design, from the exact rule.

    `max_pool_within`: the gradient of a max-pool goes to the first value of the window (width fastest) that
    is within this relative distance of the maximum; 0 is the exact rule, the first maximum.
    `running_variance`: batch norm's running variance divides the batch's variance by n - 1 ("unbiased", the
    rule) or by n.
    `max_pool_ties`: if several values of a window are equal to its maximum, the first one gets the whole gradient
    ("first", the rule), or each of them ("all"), or they share it ("shared").
    `batch_norm_sums`: batch norm adds up the pixels of a channel in float32, in this many running sums, pixel
    i in sum i modulo their number; 0 is the exact sum.
    `relu_at_zero`: the derivative of ReLU at 0, where it is undefined; the rule is 0.
    `stores_float32`: what a layer passes on, forward and backward, is rounded to float32.
    `operand_bits`: convolutions and dense layers round their operands to so many significant bits, such as 11 in
    TF32, and add up exactly; 0 is the rule, all bits.
    `sources` is the location of each rule in the engine's own code.
    """

    max_pool_within: float = 0.0
    running_variance: Literal["unbiased", "biased"] = "unbiased"
    batch_norm_sums: int = 0
    relu_at_zero: float = 0.0
    stores_float32: bool = False
    max_pool_ties: Literal["first", "all", "shared"] = "first"
    operand_bits: int = 0
    sources: dict[str, str] = {}

    def rounded_to_float32(self) -> NumericalConventions:
        """Return these rules with plain roundings: activations in float32, which batch norm adds up one by one."""
        return msgspec.structs.replace(self, batch_norm_sums=1, stores_float32=True)

    def each_rule(self) -> Iterator[tuple[str, NumericalConventions]]:
        """Iterate over the declared deviations by name, each with all other rules exact."""
        for rule, value in msgspec.structs.asdict(self).items():
            if rule != "sources" and value != getattr(NO_DEVIATIONS, rule):
                source = {rule: self.sources.get(rule, "")}
                yield rule, msgspec.structs.replace(NO_DEVIATIONS, **{rule: value}, sources=source)


NO_DEVIATIONS = NumericalConventions()


COLD_START = "POLYBENCH_COLD_START"
"""Environment variable of a worker whose startup is measured as a user's first run: if it is set, an engine
does not use compiled code that polybench cached in an earlier process."""

PINNED = "POLYBENCH_PINNED"
"""Environment variable of a pinned worker: the numbers of its CPUs, separated by commas."""


RANKS = "POLYBENCH_RANKS"
"""Environment variable of a data-parallel worker, which starts the other ranks: the CPUs of each rank, its
own first, in the format of PINNED, separated by semicolons."""


class Rank(msgspec.Struct, frozen=True):
    """A process among `count` that train one network together, each on its shard of every batch.

    They find each other through `rendezvous_file`, a private file.
    """

    number: int
    count: int
    rendezvous_file: str

    def shard(self, batch_size: int) -> slice:
        """Return this rank's slice of a batch, whose size `count` divides."""
        each = batch_size // self.count
        return slice(self.number * each, (self.number + 1) * each)


SINGLE_RANK = Rank(0, 1, "")


class EngineInfo(msgspec.Struct, frozen=True):
    """Facts about an engine that need no training: versions, build, devices (`cpu`, `cuda:0`)."""

    versions: dict[str, str]
    build: dict[str, str]
    devices: tuple[str, ...]


class Job(msgspec.Struct, frozen=True):
    """The specification from which an engine builds its training step.

    `dtype` applies to weights, activations and arithmetic. `variants` are the engine's own, sorted. Only the
    `reference` engine follows `conventions`; the others have their own. `dropout` selects the source of
    dropout masks: "own" is the engine's generator, as in normal use; "given" are the masks of
    `engines.shared.batches.dropout_masks` for this `seed` and each step.
    """

    model: Model
    workload: Workload
    device: str
    dtype: Literal["float32", "float64"]
    variants: tuple[str, ...] = ()
    conventions: NumericalConventions = NO_DEVIATIONS
    dropout: Literal["own", "given"] = "own"
    seed: int = 0
