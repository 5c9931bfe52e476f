"""Plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec
from tabulate import SEPARATING_LINE, tabulate

from polybench.render.table import WIDTH, Column, Table, one_line, wrap
from polybench.schema.printable import printable

_MIN_TITLE_WIDTH = 8
"""Characters of a line of a column's title."""
_MAX_WORD_WIDTH = 24
"""Characters of a word in a title of numbers; longer ones, such as names, are broken."""


_BLANK = "\u2800"
"""A blank that tabulate does not strip: a row of empty texts would have no line, and none would be indented."""


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
    if not any(parts):
        return [[] for _ in range(1 + len(parts))]
    parts = [
        [[_indented(row[0]), *row[1:]] for row in ([*map(_wrap_text, table.columns, row)] for row in rows)]
        for rows in parts
    ]
    columns = zip(table.columns, zip(*(row for rows in parts for row in rows), strict=True), strict=True)
    titles = [_wrap_title(column, cells) for column, cells in columns]
    text = tabulate(
        # The titles are a row: below headers, tabulate makes columns wider than their texts.
        [row for rows in ([titles], *parts) for row in (*rows, SEPARATING_LINE)],
        tablefmt="simple",
        colalign=["right" if column.numeric else "left" for column in table.columns],
        disable_numparse=True,  # it would parse and shorten numbers
    )
    rule, *lines = [line.replace(_BLANK, " ").rstrip() for line in text.splitlines()]
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line == rule:
            blocks.append([])
        else:
            blocks[-1].append(line)
    header, *rows = blocks[: 1 + len(parts)]
    return [[*header, rule], *rows]


def _indented(text: str) -> str:
    """Protect the spaces at the start of a row; a row without a text gets a blank."""
    stripped = text.lstrip(" ")
    return _BLANK * (len(text) - len(stripped)) + stripped or _BLANK


def _wrap_title(column: Column, cells: Sequence[str]) -> str:
    """Wrap titles of numbers to the width of the numbers, and at least to that of most ("14,971", "412 MiB")."""
    title = one_line(column.title)
    if not column.numeric:
        return title
    width = max(_MIN_TITLE_WIDTH, *(len(line) for cell in cells for line in cell.split("\n")))
    is_long = any(len(word) > _MAX_WORD_WIDTH for word in title.split())
    width = max(width, _MAX_WORD_WIDTH) if is_long else width
    return "\n".join(textwrap.wrap(title, width, break_long_words=is_long, break_on_hyphens=False))


def _wrap_text(column: Column, text: str) -> str:
    """Wrap a text to the column's width. tabulate fails at texts of numbers, such as "1,166"."""
    if column.width is None:
        return text
    lines = (textwrap.wrap(line, column.width, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(wrapped) for wrapped in lines)


def _statuses(table: Table, width: int) -> list[str]:
    rows = [row for part in (table, *table.continued_by) for row in part.rows]
    statuses = [(one_line(name), status) for name, status in table.statuses]
    names = [*(column.title for column in table.columns[:1]), *(printable(row[0]) for row in rows)]
    indent = max(map(len, [*names, *(name for name, _ in statuses)]), default=0) + 2
    return [wrap(status, width, first_indent=name.ljust(indent), indent=" " * indent) for name, status in statuses]
