"""The document of `polybench layers`: times of a network's layers, configurations side by side.

All times are in seconds. Null means "not measured" or "no source", never 0.

Schema history:
    polybench.layers/1  before the first release
    polybench.layers/2  fields in standard terms
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.networks.layers import Operation
from polybench.schema.configuration_status import ConfigurationStatus
from polybench.schema.encoding import decode
from polybench.schema.metadata import Host, RoundInterference, Settings, ToolVersion
from polybench.schema.resources import PeakComparison
from polybench.schema.times import StepTimes

SCHEMA = "polybench.layers/2"

STEP = "step"
"""The `layer` of rows that belong to the whole step."""


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of one layer, or of one residual block including its layers.

    `ci95` is over processes, or over rounds if there is one process; null for a single round. `flops` counts
    the direct convolution, product or LSTM, two for each multiply-add. `min_bytes_moved` is the traffic if
    every value is read or written once.
    """

    layer: str
    """STEP if it belongs to no layer."""
    operation: Operation
    seconds_per_step: float
    """Without the pauses of the garbage collector."""
    ci95: tuple[float, float] | None
    gc_seconds_per_step: float | None = None
    flops: int | None = None
    min_bytes_moved: int | None = None
    native_bytes: float | None = None
    seconds: list[list[float]] = []
    """As [process][round]."""


class ConfigurationLayers(ConfigurationStatus, kw_only=True):
    """A configuration: whole steps and their operations, measured in the same rounds.

    `unattributed_seconds`, with `ci95`, is `step_seconds` minus the sum of the rows. It is negative if the
    operations take longer alone than together, and null if only whole steps were timed. All times are
    arithmetic means over processes and rounds, which add up; `compare` shows a geometric mean.
    """

    parity: Literal["pass", "fail", "skipped"]
    compiled_as_whole: bool = False
    """The engine compiles or times the step as a whole, so its layers have no separate times."""
    step_seconds: float | None = None
    step_ci95: tuple[float, float] | None = None
    unattributed_seconds: float | None = None
    ci95: tuple[float, float] | None = None
    gc_seconds_per_step: float | None = None
    """Garbage collection in whole steps, included in `step_seconds`."""
    peak: PeakComparison | None = None
    """For whole steps."""
    rows: list[LayerRow] = []
    step_times: StepTimes | None = None
    """For whole steps."""
    versions: dict[str, Any] = {}
    """As in the results of a study."""


class LayersDocument(msgspec.Struct, kw_only=True):
    """The saved document. `study` is the measured study as TOML."""

    schema: str = SCHEMA
    id: str
    created: str
    polybench: ToolVersion
    argv: list[str]
    study: str
    settings: Settings
    host: Host
    interference: list[RoundInterference] = []
    """An entry per round."""
    warnings: list[str] = []
    configurations: list[ConfigurationLayers] = []

    def configuration(self, name: str) -> ConfigurationLayers | None:
        """The configuration of this name; None if it was not requested."""
        return next((one for one in self.configurations if one.configuration == name), None)


def layers_from_json(text: bytes) -> LayersDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the location."""
    return decode(text, LayersDocument)
