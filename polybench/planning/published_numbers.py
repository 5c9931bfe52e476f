"""What the authors of studies printed: a TOML file with a table for each publication."""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.core.document.circumstances import Published
from polybench.core.names import pick
from polybench.planning.toml_text import TomlText


class _Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """core.document.circumstances.Published; without a source of its own it has its publication's."""

    label: str
    quantity: str
    value: float | tuple[float, float]
    unit: str
    hardware: str
    source: str | None = None
    cell: str | None = None
    epochs: int = 1


class _Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    numbers: list[_Number]


def published_numbers(path: Path, name: str) -> list[Published]:
    """The numbers of the publication `name`, in the file's order.

    Raises:
        BadInput: the file cannot be read, has no such publication, or says something else of it.
    """
    text = TomlText.read(path)
    entry = pick(name, text.load(), f"publication in {path}")
    try:
        publication = msgspec.convert(entry, _Publication)
    except msgspec.ValidationError as error:
        raise text.error((name,), error) from error
    return [
        Published(
            number.label,
            number.quantity,
            number.value,
            number.unit,
            number.hardware,
            number.source or publication.source,
            number.cell,
            number.epochs,
        )
        for number in publication.numbers
    ]
