"""What `polybench explain` says: differences of step time taken apart, and sentences that rest on figures.

Seconds everywhere; null is "not measured" or "no source", never 0.

Schema history:
    polybench.explanation/1  first version
"""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.core.document.circumstances import Host, Settings, Tool

Interval = tuple[float, float]


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence, and the figure that it rests on."""

    text: str
    figure: str
    """A column of the study's table, or another saved document and what of it."""
    seconds: float | None = None
    """What it is about: of a step, where the text says nothing else."""
    command: str | None = None
    """What measures it, where it was not measured."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a difference: `seconds` is `ours` less `theirs`, where null counts as 0.

    `ours` is of the cell, `theirs` of the one that it is compared with. `interval95` is about the difference,
    over processes that ran side by side; null where there are none.
    """

    name: str
    kind: str
    """Of a layer its part, `data gradient`; of all else what it is."""
    seconds: float
    interval95: Interval | None = None
    ours: float | None = None
    theirs: float | None = None


class Account(msgspec.Struct, kw_only=True):
    """A difference taken apart: `entries` and `residue` add up to `seconds`.

    By `layers`, the parts of the step that were timed alone; by `batch size`, what every step costs and what
    its images add; the `start` has a difference of its own, that of the cold starts. What no entry explains
    is the residue, by its names; nothing is rescaled. The entries that explain most come first.
    """

    kind: Literal["layers", "batch size", "start"]
    seconds: float
    entries: list[Entry]
    residue: list[Entry] = []
    sources: list[str] = []
    """IDs of the documents that it was made from, beside the study."""

    @property
    def explained(self) -> float | None:
        """The share that the entries make up; None where there is no difference."""
        return sum(entry.seconds for entry in self.entries) / self.seconds if self.seconds else None


class Pair(msgspec.Struct, kw_only=True):
    """One cell against another: `seconds` is by how much its step is longer."""

    cell: str
    against: str
    ours: float
    theirs: float
    seconds: float
    interval95: Interval | None
    speedup: float
    speedup95: Interval | None
    uncertain: str | None = None
    """Why the difference is no verdict; null where it is one."""
    accounts: list[Account] = []
    sentences: list[Sentence] = []

    def account(self, kind: str) -> Account | None:
        """The account of this kind, where there is one."""
        return next((account for account in self.accounts if account.kind == kind), None)


class ExplanationDocument(msgspec.Struct, kw_only=True):
    """All that saved documents say about the differences in one study."""

    schema: str = "polybench.explanation/1"
    study: str
    """Its ID."""
    created: str
    """When the study was."""
    polybench: Tool
    settings: Settings
    host: Host
    pairs: list[Pair]
    """Those without a verdict first."""
    advice: list[Sentence] = []
    """What was measured to be faster, by what it gains."""
    missing: list[Sentence] = []
    """What was not measured, with the commands that do."""
    left_out: list[Sentence] = []
    """Cells that cannot be compared."""

    def all_sentences(self) -> list[Sentence]:
        """In the order in which they are read."""
        of_pairs = [sentence for pair in self.pairs for sentence in pair.sentences]
        return [*of_pairs, *self.advice, *self.missing, *self.left_out]
