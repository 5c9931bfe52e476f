"""Plain text for a terminal: tables that tabulate lays out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec
from tabulate import tabulate

from polybench.render.table import WIDTH, Table, one_line, wrap
from polybench.schema.printable import printable

_MAX_TITLE_WIDTH = 8
"""Titles of numbers wrap to the width of most values ("14,971", "2.15 s", "412 MiB")."""

_PAD = "\u2800"
"""A blank that tabulate does not strip."""


def render(table: Table, width: int = WIDTH) -> str:
    """Render all texts and tables without colours or escape sequences.

    Everything except the tables themselves wraps to `width` characters.
    """
    return "\n\n".join(_blocks(table, width)) + "\n"


def table_width(table: Table) -> int:
    """Count the characters of the widest line of the table itself."""
    return max((len(line) for block in _layout(table) for line in block), default=0)


def format_rows(table: Table) -> str:
    """Lay out the rows alone, below the titles of their columns."""
    return "\n".join(line for block in _layout(table) for line in block)


def _fit(table: Table, width: int) -> Table:
    """Omit optional columns until the table fits, those with the last title first."""
    titles = list(dict.fromkeys(column.title for column in table.columns if column.optional))
    omitted: list[str] = []
    shown = table
    while titles and table_width(shown) > width:
        omitted.insert(0, titles.pop())
        kept = [number for number, column in enumerate(table.columns) if column.title not in omitted]
        rows = [[row[number] for number in kept] for row in table.rows]
        note = f"omitted, because the line is too short: {', '.join(omitted)}; other formats have all columns"
        columns = [table.columns[number] for number in kept]
        shown = msgspec.structs.replace(table, columns=columns, rows=rows, notes=[*table.notes, note])
    return shown


def _blocks(table: Table, width: int) -> Iterator[str]:
    table = _fit(table, width)
    header, rows, *continued = _layout(table)
    blocks = [
        [wrap(line, width, indent="  ") for line in table.title],
        [*header, *rows, *_statuses(table, width)],
        *([*map(one_line, one.title), *lines] for one, lines in zip(table.continued_by, continued, strict=True)),
    ]
    yield from ("\n".join(block) for block in blocks if block)
    for one in table.tables:
        if one not in table.continued_by:
            yield from _blocks(one, width)
    if table.notes:
        yield "\n".join(wrap(note, width, first_indent="  ", indent="    ") for note in table.notes)
    if table.summary:
        yield "\n".join(wrap(sentence, width) for sentence in table.summary)
    if table.published:
        yield from _blocks(table.published, width)


def _layout(table: Table) -> list[list[str]]:
    """Lay out a table and those that continue it, so that their columns align: header, then the rows of each."""
    parts = [table, *table.continued_by]
    rows = [list(map(printable, row)) for part in parts for row in part.rows]
    if not rows:
        return [[] for _ in range(1 + len(parts))]
    aligned = zip(
        *(
            _align_numbers(texts) if column.numeric else texts
            for column, texts in zip(table.columns, zip(*rows, strict=True), strict=True)
        ),
        strict=True,
    )
    names = [one_line(column.title) for column in table.columns]
    titles = [_wrap_title(name) if column.numeric else name for column, name in zip(table.columns, names, strict=True)]
    text = tabulate(
        list(aligned),
        titles,
        "simple",
        colalign=["right" if column.numeric else "left" for column in table.columns],
        maxcolwidths=[column.width for column in table.columns] if any(one.width for one in table.columns) else None,
        disable_numparse=True,  # it would parse and shorten numbers
    )
    lines = [line.replace(_PAD, " ").rstrip() for line in text.splitlines()]
    end = 2 + max(title.count("\n") for title in titles)
    blocks = [lines[:end]]
    for part in parts[:-1]:
        blocks.append(lines[end : end + len(part.rows)])
        end += len(part.rows)
    return [*blocks, lines[end:]]


def _wrap_title(title: str) -> str:
    return "\n".join(textwrap.wrap(title, _MAX_TITLE_WIDTH, break_long_words=False, break_on_hyphens=False))


def _align_numbers(texts: Sequence[str]) -> list[str]:
    """Pad after the text behind each number, so that numbers line up on the right and texts on the left."""
    parts = [text.partition(" ") for text in texts]
    width = max(len(rest) for _, _, rest in parts)
    return [
        f"{number}{space or ' ' * (width > 0)}{rest}{_PAD * (width - len(rest))}" if number else ""
        for number, space, rest in parts
    ]


def _statuses(table: Table, width: int) -> list[str]:
    rows = [row for part in (table, *table.continued_by) for row in part.rows]
    statuses = [(one_line(name), status) for name, status in table.statuses]
    names = [*(column.title for column in table.columns[:1]), *(printable(row[0]) for row in rows)]
    indent = max(map(len, [*names, *(name for name, _ in statuses)]), default=0) + 2
    return [wrap(status, width, first_indent=name.ljust(indent), indent=" " * indent) for name, status in statuses]
