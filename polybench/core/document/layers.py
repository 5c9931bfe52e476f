"""The times of the layers of a network, engines side by side: what `polybench layers` prints as JSON.

Seconds everywhere; null is "not measured" or "no source", never 0.

Schema history:
    polybench.layers/1  first version
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.core.document.circumstances import Host, Settings, Tool
from polybench.core.document.resources import Roof
from polybench.core.document.row import Row
from polybench.core.document.study import decoded
from polybench.core.document.times import Samples

SCHEMA = "polybench.layers/1"

Part = Literal["forward", "data gradient", "weight gradient", "activation", "loss", "update", "call"]
"""What is timed alone. Of a layer: its forward pass, with that of the ReLU after it, since engines compute
both at once; the gradient of its input; that of its weights; and the gradient through the ReLU. Of the step:
the loss with its gradient, the optimizer's update, and a call of the engine's step that has nothing to do."""


STEP = "step"
"""The layer of rows that belong to none."""


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One part of one layer, or of one residual block with all that is in it.

    `interval95` is over processes, or over rounds where there is one process; null with a single round.
    `flop` are those of the direct convolution, product or LSTM, two for each multiply-add; `compulsory_bytes`
    are what it has to read and write if each value moves once.
    """

    layer: str
    """STEP for what belongs to no layer."""
    part: Part
    seconds_per_step: float
    """Without what the garbage collector of the engine's language took meanwhile."""
    interval95: tuple[float, float] | None
    gc_seconds_per_step: float | None = None
    flop: int | None = None
    compulsory_bytes: int | None = None
    native_bytes: float | None = None
    seconds: list[list[float]] = []
    """[process][round]."""


class EngineLayers(Row, kw_only=True):
    """One cell: whole steps, measured in the same rounds as the parts, and these.

    `residue_seconds`, with `interval95`, is `step_seconds` less the sum of the rows: below 0 where parts
    alone take longer than together. It is null where nothing but whole steps has a time. Steps and rows are
    means over processes and rounds, which add up; `compare` has a geometric mean.
    """

    parity: Literal["pass", "fail", "skipped"]
    whole_step: bool = False
    """The step is compiled, or timed, as a whole, so that its layers have no times of their own."""
    step_seconds: float | None = None
    step_interval95: tuple[float, float] | None = None
    residue_seconds: float | None = None
    interval95: tuple[float, float] | None = None
    gc_seconds_per_step: float | None = None
    """Of whole steps; it is in `step_seconds`."""
    roof: Roof | None = None
    """Its `share` is that of whole steps."""
    rows: list[LayerRow] = []
    samples: Samples | None = None
    """Of whole steps."""
    versions: dict[str, Any] = {}
    """As a study's results have them."""


class LayersDocument(msgspec.Struct, kw_only=True):
    """The whole record. `study` is what was measured, as TOML."""

    schema: str = SCHEMA
    id: str
    created: str
    polybench: Tool
    argv: list[str]
    study: str
    settings: Settings
    host: Host
    warnings: list[str] = []
    engines: list[EngineLayers] = []

    def engine(self, cell: str) -> EngineLayers | None:
        """The cell of this name; None where it was not asked for."""
        return next((engine for engine in self.engines if engine.cell == cell), None)


def layers_from_json(text: bytes) -> LayersDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the place."""
    return decoded(text, LayersDocument)
