"""The parity check of a configuration: its computation against the reference, tensor by tensor."""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.schema.options import Amount, NaturalInt, PositiveInt

ComparisonKind = Literal[
    "loss",
    "gradient",
    "size",
    "weight",
    "schedule",
    "statistic",
    "batch",
    "kept share",
    "dropout scale",
    "correct",
    "logits",
]


class TensorComparison(msgspec.Struct, frozen=True):
    """A comparison of the parity check; `relative_error` is null if it is not finite.

    The error is norm(a - b) / max(norm(b), 1e-6 norm(all gradients)), or 1 - cosine for gradients in tf32 and
    bf16. For a batch of an input pipeline it is the largest difference of a pixel (0 to 1), or the fraction
    of wrong labels. If the update is larger than the weights, timed weights are compared relative to the
    update. If a gradient is zero up to rounding, the scale is the drift that an optimizer makes of rounding;
    this also applies to running means behind it. "size" is the distance from 1 of a gradient's component along
    the reference's, relative to it; "schedule" is that of weights after a change of the learning rate;
    "statistic" is that of running statistics; "kept share", "dropout scale" and "correct" are those of the share of
    values that dropout keeps, of their factor, and of the share of correct predictions. "logits" are those of a forward
    pass.
    """

    part: Literal["float64", "timed"]
    name: str
    step: NaturalInt
    kind: ComparisonKind
    relative_error: Amount | None
    tolerance: Amount

    @property
    def passed(self) -> bool:
        """True if the error is finite and within the tolerance."""
        return self.relative_error is not None and self.relative_error <= self.tolerance


class PrecisionResult(msgspec.Struct, frozen=True):
    """The largest errors in one part of the check, with their tolerances; null means not finite, or not compared.

    A forward pass has only the error of its logits. In the timed part, the weight error is that of the update from the
    engine's own gradient.
    """

    max_loss_error: Amount | None
    max_gradient_error: Amount | None
    max_weight_error: Amount | None
    tolerance: dict[str, Amount]
    max_logits_error: Amount | None = None


class KnownDeviation(msgspec.Struct, frozen=True):
    """A declared convention of an engine, and the error of one tensor's gradient against the exact rule."""

    rule: str
    tensor: str
    error: Amount
    source: str


class ParityCheck(msgspec.Struct, frozen=True):
    """The result of a parity check, in float64 and as timed, with every comparison.

    `checked_at` is the time of the check (UTC, ISO 8601). A cached check is older than the study. The float64 part has
    batches of `batch_size`, the timed part of `timed_batch_size`.
    """

    status: Literal["pass", "fail", "skipped"]
    reason: str | None = None
    checked_at: str | None = None
    steps: NaturalInt | None = None
    batch_size: PositiveInt | None = None
    timed_batch_size: PositiveInt | None = None
    float64: PrecisionResult | None = None
    timed: PrecisionResult | None = None
    known_deviations: list[KnownDeviation] = []
    tensors: list[TensorComparison] = []


UNCHECKED = ParityCheck("skipped", "not asked for")
"""The initial value, before a configuration is checked."""
