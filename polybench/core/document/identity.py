"""Whether a cell computed what the reference computes, tensor by tensor."""

from __future__ import annotations

from typing import Literal

import msgspec


class TensorError(msgspec.Struct, frozen=True):
    """One comparison of the parity check; `relative_error` is null when it is not finite.

    norm(a - b) / max(norm(b), 1e-6 norm(all gradients)); for tf32 and bf16 gradients 1 - cosine. Of a batch
    from an input pipeline it is the largest difference of a pixel (0..1), or the share of wrong labels. Of
    timed weights the step to them counts where it is larger than they are; of what has a gradient that
    vanishes, and of running means behind it, what an optimizer makes of rounding.
    """

    part: Literal["algorithm", "timed"]
    name: str
    step: int
    kind: Literal["loss", "gradient", "weight", "batch"]
    relative_error: float | None
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is finite and within its tolerance."""
        return self.relative_error is not None and self.relative_error <= self.tolerance


class ParityPart(msgspec.Struct, frozen=True):
    """The worst errors of one part of the check (null: not finite), and what they may be at most.

    In the timed part, the weight error is that of the update from the engine's own gradient.
    """

    max_loss_error: float | None
    max_gradient_error: float | None
    max_weight_error: float | None
    tolerance: dict[str, float]


class Deviation(msgspec.Struct, frozen=True):
    """A declared convention against the exact rule: how far one tensor's gradient is from exact."""

    what: str
    tensor: str
    error: float
    source: str


class Parity(msgspec.Struct, frozen=True):
    """The verdict of the identity check on a cell, its two parts, and every comparison.

    `checked` says when, in UTC (ISO 8601): of a check that an earlier study has kept, before this one began.
    """

    status: Literal["pass", "fail", "skipped"]
    reason: str | None = None
    checked: str | None = None
    steps: int | None = None
    batch_size: int | None = None
    algorithm: ParityPart | None = None
    timed: ParityPart | None = None
    deviations: list[Deviation] = []
    tensors: list[TensorError] = []


UNCHECKED = Parity("skipped", "not asked for")
"""Of a cell of which nothing is known yet."""
