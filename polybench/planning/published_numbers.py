"""Reads published results: a TOML file with a table per publication."""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.errors import lookup_or_suggest
from polybench.planning.toml_text import TomlText
from polybench.schema.metadata import PublishedMetric, PublishedResult


class _Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of schema.metadata.PublishedResult; missing ones come from the publication."""

    label: str
    quantity: str
    value: float | tuple[float, float]
    unit: str
    hardware: str
    source: str | None = None
    configuration: str | None = None
    epochs: int = 1
    metric: PublishedMetric = "epoch_time"
    steps: int = 1
    model: str | None = None
    batch_size: int | None = None
    augment: bool | None = None

    def __post_init__(self) -> None:
        if self.configuration is not None and self.metric in ("epoch_time", "step_time") and self.unit != "s":
            raise ValueError(f'{self.metric} is compared in seconds, not in {self.unit!r}: write unit = "s"')


class _Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    numbers: list[_Number]
    model: str | None = None
    batch_size: int | None = None


def published_numbers(path: Path, name: str) -> list[PublishedResult]:
    """Return the numbers of the publication `name`, in the file's order.

    Raises:
        BadInput: the file cannot be read, or the publication is missing or invalid.
    """
    text = TomlText.read(path)
    entry = lookup_or_suggest(name, text.load(), f"publication in {path}")
    try:
        publication = msgspec.convert(entry, _Publication)
    except msgspec.ValidationError as error:
        raise text.error((name,), error) from error
    return [
        PublishedResult(
            number.label,
            number.quantity,
            number.value,
            number.unit,
            number.hardware,
            number.source or publication.source,
            number.configuration,
            number.epochs,
            number.metric,
            number.steps,
            number.model or publication.model,
            number.batch_size or publication.batch_size,
            number.augment,
        )
        for number in publication.numbers
    ]
