"""The block of an author's own numbers, kept apart from everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core.document.circumstances import Published

TITLE = "published (not measured here)"
HEADER = ["what", "hardware", "quantity", "value"]
ALIGNMENT = ["left"] * len(HEADER)


def rows(published: Sequence[Published]) -> list[list[str]]:
    """One row a number, in the order of the study file."""
    return [
        [number.label, number.hardware, number.quantity, f"{_digits(number.value)} {number.unit}".rstrip()]
        for number in published
    ]


def sources(published: Sequence[Published]) -> list[str]:
    """Each publication once."""
    return [f"source: {source}" for source in dict.fromkeys(number.source for number in published)]


def _digits(value: float | tuple[float, float]) -> str:
    """All digits that the author printed, not rounded to what we print of our own."""
    if isinstance(value, tuple):
        return " to ".join(map(_digits, value))
    return f"{value:,.12g}"
