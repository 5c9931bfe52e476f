"""Helpers for text output: tables, wrapped lines, notes and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from textwrap import fill

from tabulate import tabulate

from polybench.render import WIDTH, one_line


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int, markdown: bool) -> str:
    """Lay out a table; the first `text_columns` columns are text, the others numbers."""
    alignment = ["left"] * text_columns + ["right"] * (len(header) - text_columns)
    style = "github" if markdown else "simple"
    text = tabulate(list(rows), list(header), style, colalign=alignment, disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.splitlines())


def wrap(text: str, width: int = WIDTH, first_indent: str = "", indent: str = "") -> str:
    """Break text into lines of `width` characters; commands and paths stay in one piece.

    Args:
        text: a paragraph.
        width: characters per line.
        first_indent: start of the first line.
        indent: start of the other lines.
    """
    return fill(
        one_line(text),
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def format_notes(notes: Iterable[str], *, markdown: bool) -> str:
    """Format notes below a table: one per line, or a list in Markdown, which joins lines."""
    return "\n".join(f"- {one_line(note)}" if markdown else wrap(note) for note in notes)


def format_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format CSV with one header line; None becomes an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
