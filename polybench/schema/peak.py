"""The document of `polybench peak`: the highest compute and memory throughput measured on a machine.

Schema history:
    polybench.limit/1  before the first release
    polybench.peak/2   fields in standard terms
"""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.networks.model import Model
from polybench.schema.configuration_status import ConfigurationStatus
from polybench.schema.metadata import Host, RoundInterference, ToolVersion

SCHEMA = "polybench.peak/2"

PeakKind = Literal["gemm", "convolution", "memory_bandwidth"]
"""A product of square matrices; a convolution of the network; the STREAM triad a = b + s c over arrays that
are larger than every cache."""

MAX_DRIFT = 0.05
"""Largest drift from the first to the last round, and largest CPU contention, of a peak that percentages may
refer to."""


class PeakMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The highest throughput of its kind over all engines, sizes and directions; the median over rounds.

    `ci95` is the interval of that median within this run; null for fewer than six rounds. `drift` is the
    relative change from the first to the last round; null for a single round. `cpu_contention` is the
    fraction of the required cores that other programs and the hypervisor took: the median over rounds.
    """

    device: str
    precision: str | None
    """The engines' precision; null for memory bandwidth, which NumPy measures in float64."""
    threads: int
    kind: PeakKind
    value: float
    unit: Literal["FLOP/s", "B/s"]
    """FLOP counts the direct computation. Bytes are those of three arrays, each read or written once, without
    the cache lines that are fetched before a write."""
    engine: str
    """With its variant."""
    shape: str
    ci95: tuple[float, float] | None
    drift: float | None
    cpu_contention: float
    measured_at: str
    """UTC, ISO 8601."""

    @property
    def is_stable(self) -> bool:
        """True if percentages of this peak are meaningful."""
        return self.drift is not None and abs(self.drift) <= MAX_DRIFT and self.cpu_contention <= MAX_DRIFT


class ConfigurationPeaks(ConfigurationStatus, kw_only=True):
    """A requested configuration and its outcome."""

    versions: dict[str, str] = {}


class PeakDocument(msgspec.Struct, kw_only=True):
    """The saved document. The convolutions are those of `model` with `batch_size` images."""

    schema: str = SCHEMA
    created: str
    polybench: ToolVersion
    argv: list[str]
    model: str
    network: Model | None = None
    """The network itself, if it came from a user's file."""
    batch_size: int
    threads: int
    malloc: str
    numpy: str | None = None
    """The version of NumPy, which measured memory bandwidth, and matrix products beside the engines."""
    host: Host
    interference: list[RoundInterference] = []
    """An entry per round."""
    peaks: list[PeakMeasurement]
    configurations: list[ConfigurationPeaks]
    warnings: list[str] = []
