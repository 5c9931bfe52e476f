"""Plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

import msgspec

from polybench.render.table import WIDTH, Column, Table, one_line, wrap
from polybench.schema.printable import printable

_MIN_TITLE_WIDTH = 8
"""Characters of a line of a column's title."""


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


def fit(table: Table, width: int) -> Table:
    """Omit optional columns until the table fits, of a rank the last one first; then wrap the longest texts."""
    ranks = {column.title: column.optional for column in table.columns if column.optional}
    optional = sorted(ranks, key=lambda title: ranks[title])
    omitted: list[str] = []
    shown = table
    while optional and table_width(shown) > width:
        omitted.insert(0, optional.pop())
        kept = [number for number, column in enumerate(table.columns) if column.title not in omitted]
        rows = [[row[number] for number in kept] for row in table.rows]
        note = f"omitted, because the line is too short: {', '.join(omitted)}; other formats have all columns"
        columns = [table.columns[number] for number in kept]
        shown = msgspec.structs.replace(table, columns=columns, rows=rows, notes=[*table.notes, note])
    return _wrap_longest(shown, width)


def _wrap_longest(table: Table, width: int) -> Table:
    """Wrap the texts of the widest columns until the table fits: of those of words first, then of numbers."""
    columns, narrow = [*table.columns], set()
    while (excess := table_width(msgspec.structs.replace(table, columns=columns)) - width) > 0:
        lengths = {
            number: max(len(row[number]) for row in table.rows)
            for number in range(len(columns))
            if number not in narrow and table.rows
        }
        widest = max(lengths, key=lambda number: (not columns[number].numeric, lengths[number]), default=None)
        if widest is None:
            break
        narrow.add(widest)
        new = max(_MIN_TITLE_WIDTH, min(lengths[widest], columns[widest].width or WIDTH) - excess)
        columns[widest] = columns[widest]._replace(width=new)
    return msgspec.structs.replace(table, columns=columns)


def _blocks(table: Table, width: int) -> Iterator[str]:
    table = fit(table, width)
    header, rows, *continued = _layout(table)
    blocks = [
        [wrap(line, width, indent="  ") for line in table.title],
        [wrap(sentence, width, first_indent="  ", indent="  ") for sentence in table.summary],
        [*header, *rows, *_statuses(table, width)],
        *([*map(one_line, one.title), *lines] for one, lines in zip(table.continued_by, continued, strict=True)),
    ]
    yield from ("\n".join(block) for block in blocks if block)
    for one in table.tables:
        if one not in table.continued_by:
            yield from _blocks(one, width)
    if table.notes or table.more:
        notes = [wrap(note, width, first_indent="  ", indent="    ") for note in table.notes]
        yield "\n".join([*notes, *_share_line(table.more, width)])
    if table.published:
        yield from _blocks(table.published, width)


def _share_line(texts: Sequence[str], width: int) -> list[str]:
    """Put as many texts into a line as fit."""
    lines: list[str] = []
    for text in texts:
        longer = f"{lines[-1]}   {text}" if lines else ""
        if lines and len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(wrap(text, width, first_indent="  ", indent="    "))
    return lines


def _layout(table: Table) -> list[list[str]]:
    """Lay out a table and those that continue it, so that their columns align: header, then the rows of each."""
    parts = [[list(map(printable, row)) for row in part.rows] for part in (table, *table.continued_by)]
    columns = [*zip(*(row for rows in parts for row in rows), strict=True)]
    if not columns:
        return [[] for _ in range(1 + len(parts))]
    cells = [
        [_wrap_text(text, column.width) for text in row] for column, row in zip(table.columns, columns, strict=True)
    ]
    titles = [_wrap_title(column, row) for column, row in zip(table.columns, cells, strict=True)]
    widths = [
        max(len(line) for text in (title, *row) for line in text) for title, row in zip(titles, cells, strict=True)
    ]

    def lines(row: Sequence[list[str]]) -> Iterator[str]:
        for line in zip_longest(*row, fillvalue=""):
            aligned = (
                text.rjust(width) if column.numeric else text.ljust(width)
                for column, text, width in zip(table.columns, line, widths, strict=True)
            )
            yield "  ".join(aligned).rstrip()

    laid_out = iter([[*lines(row)] for row in zip(*cells, strict=True)])
    header = [*lines(titles), "  ".join("-" * width for width in widths)]
    return [header, *([line for row in islice(laid_out, len(rows)) for line in row] for rows in parts)]


def _wrap_title(column: Column, cells: Sequence[Sequence[str]]) -> list[str]:
    """Wrap titles of numbers to the width of the numbers, and at least to that of most ("14,971", "412 MiB")."""
    title = one_line(column.title)
    if not column.numeric:
        return [title]
    width = max(_MIN_TITLE_WIDTH, *(len(line) for cell in cells for line in cell))
    return textwrap.wrap(title, width, break_long_words=False, break_on_hyphens=False) or [""]


def _wrap_text(text: str, width: int | None) -> list[str]:
    lines = text.split("\n")
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def _statuses(table: Table, width: int) -> list[str]:
    rows = [row for part in (table, *table.continued_by) for row in part.rows]
    statuses = [(one_line(name), status) for name, status in table.statuses]
    names = [*(column.title for column in table.columns[:1]), *(printable(row[0]) for row in rows)]
    indent = max(map(len, [*names, *(name for name, _ in statuses)]), default=0) + 2
    return [wrap(status, width, first_indent=name.ljust(indent), indent=" " * indent) for name, status in statuses]
