"""What `polybench limit` prints and keeps: the most that was reached on a machine.

Schema history:
    polybench.limit/1  first version
"""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.core.document.circumstances import Host, Tool
from polybench.core.document.row import Row
from polybench.core.model import Model

Kind = Literal["gemm", "convolution", "triad"]
"""A product of square matrices; a convolution of the network; a = b + s c over arrays that no cache holds."""

STEADY = 0.05
"""Where the first and the last round are further apart, or others took more of the cores, a rate is no roof
to take percentages of."""


class MeasuredRoof(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest of its kind: of all engines, sizes and directions, the median over rounds.

    `interval95` is about that median, within one run, null for fewer than six rounds. `change` is the last
    round against the first, as a fraction; null for a single round. `others` is what other programs and the
    hypervisor took of the cores that its threads needed: the median over rounds.
    """

    device: str
    precision: str | None
    """Of the engines; null for the triad, which is NumPy's in float64."""
    threads: int
    kind: Kind
    value: float
    unit: Literal["FLOP/s", "B/s"]
    """FLOP are those of the direct computation. Bytes are those of three arrays, each read or written once:
    that a line is fetched before it is written is not counted."""
    engine: str
    """With its variant."""
    shape: str
    interval95: tuple[float, float] | None
    change: float | None
    others: float
    measured: str
    """When: UTC, ISO 8601."""

    @property
    def steady(self) -> bool:
        """Whether percentages may be taken of it."""
        return self.change is not None and abs(self.change) <= STEADY and self.others <= STEADY


class LimitEngine(Row, kw_only=True):
    """One cell that was asked, and what it was."""

    versions: dict[str, str] = {}


class LimitDocument(msgspec.Struct, kw_only=True):
    """The whole record. The convolutions are those of `model` with `batch_size` images."""

    schema: str = "polybench.limit/1"
    created: str
    polybench: Tool
    argv: list[str]
    model: str
    network: Model | None = None
    """The network itself, where it came from a file of the user's."""
    batch_size: int
    threads: int
    heap: str
    numpy: str | None = None
    """Its version: of what made the triad, and products beside the engines'."""
    host: Host
    roofs: list[MeasuredRoof]
    engines: list[LimitEngine]
    warnings: list[str] = []
