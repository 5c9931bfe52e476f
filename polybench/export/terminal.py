"""Plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, wrap

from tabulate import tabulate

from polybench.core.document.study import StudyDocument
from polybench.export import WIDTH, published
from polybench.export.rows import NOT_RANKED, Column, Table, build

TITLE_WIDTH = 8
"""Titles wrap to the width that most values have ("14,971", "2.15 s", "412 MiB")."""


def render(study: StudyDocument, columns: Sequence[Column], width: int = WIDTH) -> str:
    """Heading, table, notes and closing sentences; no colour, no escape sequences.

    All but the table itself wraps to `width` characters.
    """
    table = build(study, columns)
    header, ranked, unranked = _aligned(table)
    blocks = (
        [wrapped(line, width, rest="  ") for line in table.heading],
        [*header, *ranked, *_absent(table, width)],
        [NOT_RANKED, *unranked] if unranked else [],
        [wrapped(note, width, first="  ", rest="    ") for note in table.footnotes],
        [wrapped(sentence, width) for sentence in table.sentences],
        published_block(table, width),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def table_width(study: StudyDocument, columns: Sequence[Column]) -> int:
    """How many characters the widest line of the table itself has."""
    return max((len(line) for block in _aligned(build(study, columns)) for line in block), default=0)


def _aligned(table: Table) -> tuple[list[str], list[str], list[str]]:
    """Lines of the header and of both blocks, laid out as one table so that their columns agree."""
    rows = [*table.ranked, *table.unranked]
    if not rows:
        return [], [], []
    columns = zip(*rows, strict=True)
    aligned = zip(*(_numbers_aligned(column) for column in columns), strict=True)
    header = ["\n".join(wrap(title, TITLE_WIDTH, break_long_words=False)) for title in table.header]
    # Numbers stay as written: tabulate would parse and shorten them.
    text = tabulate(list(aligned), header, "simple", colalign=table.alignment, disable_numparse=True)
    lines = [line.rstrip() for line in text.splitlines()]
    first = len(lines) - len(rows)
    second = first + len(table.ranked)
    return lines[:first], lines[first:second], lines[second:]


def _numbers_aligned(column: Sequence[str]) -> list[str]:
    """Padding between the number and what follows it, so that in a right-aligned column both line up."""
    parts = [text.partition(" ") for text in column]
    width = max(len(rest) for _, _, rest in parts)
    return [f"{number}{space}{rest.rjust(width)}" if number else "" for number, space, rest in parts]


def _absent(table: Table, width: int) -> list[str]:
    names = max(len(row[0]) for row in [*table.ranked, *table.unranked, *table.absent, table.header])
    return [
        wrapped(outcome, width, first=f"{cell:<{names}}  ", rest=" " * (names + 2))
        for cell, outcome in table.absent
    ]


def published_block(table: Table, width: int) -> list[str]:
    """The published numbers under a title of their own; no line where there are none."""
    if not table.published:
        return []
    text = tabulate(table.published, table.published_header, "simple", disable_numparse=True)
    lines = [line.rstrip() for line in text.splitlines()]
    return [
        published.TITLE,
        "",
        *lines,
        "",
        *(wrapped(source, width, first="  ") for source in table.sources),
    ]


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    """The text in lines of `width` characters; `first` begins the first one, `rest` the others."""
    # Commands to copy and paths must stay in one piece.
    return fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
