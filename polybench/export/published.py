"""The block of an author's own numbers, kept apart from everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core import units
from polybench.core.document.circumstances import Published
from polybench.core.document.result import Result

TITLE = "published (not measured here)"
HEADER = ["what", "hardware", "quantity", "value"]
BESIDE = ["here", "ratio"]
"""What the same took in this study, and how many times as long the author's took."""


def header(published: Sequence[Published], results: Sequence[Result] = ()) -> list[str]:
    """Of `rows`: with our own numbers where one of the cells repeats what an author timed."""
    return [*HEADER, *BESIDE] if any(_here(number, results) for number in published) else HEADER


def rows(published: Sequence[Published], results: Sequence[Result] = ()) -> list[list[str]]:
    """One row a number, in the order of the study file; `results` are what was measured here."""
    beside = len(header(published, results)) > len(HEADER)
    return [
        [number.label, number.hardware, number.quantity, f"{_digits(number.value)} {number.unit}".rstrip()]
        + (_beside(number, results) if beside else [])
        for number in published
    ]


def _beside(number: Published, results: Sequence[Result]) -> list[str]:
    here = _here(number, results)
    if here is None:
        return ["", ""]
    theirs = number.value if isinstance(number.value, tuple) else (number.value,)
    ratio = " to ".join(units.number(value / here) for value in theirs)
    return [f"{number.cell} {units.seconds(here)}", f"{ratio} times"]


def _here(number: Published, results: Sequence[Result]) -> float | None:
    """Seconds of as many epochs as the author's, of the cell that repeats them."""
    epochs = (result.epoch_seconds for result in results if result.ranked and result.cell == number.cell)
    seconds = next(epochs, None)
    return None if seconds is None else number.epochs * seconds


def sources(published: Sequence[Published]) -> list[str]:
    """Each publication once."""
    return [f"source: {source}" for source in dict.fromkeys(number.source for number in published)]


def _digits(value: float | tuple[float, float]) -> str:
    """All digits that the author printed, not rounded to what we print of our own."""
    if isinstance(value, tuple):
        return " to ".join(map(_digits, value))
    return f"{value:,.12g}"
