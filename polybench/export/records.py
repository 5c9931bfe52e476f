"""Tables that are not a study's: a header and lines of text, in the formats that people and programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from textwrap import fill

from tabulate import tabulate

from polybench.export import WIDTH
from polybench.export.one_line import one_line

INTERVALS = "intervals: 95%, over fresh processes"
"""Below a table that has any."""


def laid_out(header: Sequence[str], lines: Sequence[Sequence[str]], left: int, markdown: bool) -> str:
    """A table of texts; the first `left` columns are words, the others numbers."""
    alignment = ["left"] * left + ["right"] * (len(header) - left)
    style = "github" if markdown else "simple"
    text = tabulate(list(lines), list(header), style, colalign=alignment, disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.splitlines())


def wrapped(text: str) -> str:
    """A sentence below a table."""
    return fill(one_line(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def below(notes: Iterable[str], *, markdown: bool) -> str:
    """Sentences below a table: lines, or a list in Markdown, where lines would run into each other."""
    return "\n".join(f"- {one_line(note)}" if markdown else wrapped(note) for note in notes)


def comma_separated(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """CSV with one header line; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue()
