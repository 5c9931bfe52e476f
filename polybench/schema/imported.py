"""The document of `polybench import`: a user's model as a network, and the proof that both are the same."""

from __future__ import annotations

import msgspec

from polybench.schema.options import NaturalInt, PositiveInt
from polybench.schema.parity import PrecisionResult


class ImportedLayer(msgspec.Struct, frozen=True):
    """A layer of the network, and the operation of the user's program that it was: `place` is a file and a line."""

    name: str
    type: str
    operation: str
    place: str


class Proof(msgspec.Struct, frozen=True):
    """Float64 training steps and evaluations of the user's program and of the network, compared.

    They start from equal weights, the model's own and drawn ones, and take equal batches. `failure` describes the
    largest failed comparison of the first training with one; null if all passed. `omitted` tells what was left out.
    """

    steps: NaturalInt
    batch_sizes: list[PositiveInt]
    comparisons: NaturalInt
    errors: PrecisionResult
    failure: str | None
    omitted: list[str]


class ImportDocument(msgspec.Struct, kw_only=True):
    """Document of `polybench import`. `network` is the network file; `notes` tell what differs by convention."""

    schema: str = "polybench.import/1"
    program: str
    framework: str
    versions: dict[str, str]
    network: str
    model: str
    parameters: PositiveInt
    layers: list[ImportedLayer]
    notes: list[str]
    proof: Proof
