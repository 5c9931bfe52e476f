"""LaTeX table in booktabs style; the document must load booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tabulate import LATEX_ESCAPE_RULES, tabulate

from polybench.render.table import Table, one_line

_INVALID_IN_LABELS = re.compile(r"[^A-Za-z0-9-]+")
"""Characters that labels or packages do not accept."""


def render(table: Table) -> str:
    """Render a `table` environment in UTF-8 with the caption above and notes below; further notes are comments.

    The label is `tab:` plus the document's ID.
    """
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape('; '.join(table.title))}}}",
        # A label before the caption would get a wrong number.
        *([rf"\label{{tab:{_INVALID_IN_LABELS.sub('-', table.id)}}}"] if table.id else []),
        *_tables(table),
        r"\par\smallskip\footnotesize\raggedright",
        *(rf"{_escape(note)}\par" for note in _notes(table)),
        *(f"% {_escape(note)}" for note in table.further_notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tables(table: Table) -> Iterator[str]:
    if table.rows:
        rows = [list(map(one_line, row)) for row in table.rows]
        titles = [one_line(column.title) for column in table.columns]
        alignment = ["right" if column.numeric else "left" for column in table.columns]
        yield tabulate(rows, titles, "latex_booktabs", colalign=alignment, disable_numparse=True)
    for one in (*table.tables, *([table.published] if table.published else [])):
        yield rf"\par\medskip {_escape('; '.join(one.title))}\par\smallskip"
        yield from _tables(one)


def _notes(table: Table) -> Iterator[str]:
    yield from (f"{name}: {status}" for name, status in table.statuses)
    for one in table.tables:
        yield from _notes(one)
    yield from (*table.notes, *table.summary)
    if table.published:
        yield from _notes(table.published)


def _escape(text: str) -> str:
    """Escape text by the rules that tabulate applies to table cells."""
    return "".join(LATEX_ESCAPE_RULES.get(character, character) for character in one_line(text))
