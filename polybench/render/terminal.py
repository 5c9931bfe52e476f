"""Plain text table for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from polybench.render import WIDTH, published_results
from polybench.render.study_table import NOT_RANKED, Column, StudyTable, build_table
from polybench.render.tables import wrap
from polybench.schema.study import StudyDocument

MAX_TITLE_WIDTH = 8
"""Titles wrap to the width of most values ("14,971", "2.15 s", "412 MiB")."""


def render(study: StudyDocument, columns: Sequence[Column], width: int = WIDTH) -> str:
    """Render the header, the table, footnotes and the summary, without colours or escape sequences.

    Everything except the table itself wraps to `width` characters.
    """
    table = build_table(study, columns)
    header, ranked, unranked = _layout(table)
    blocks = (
        [wrap(line, width, indent="  ") for line in table.header_lines],
        [*header, *ranked, *_not_measured(table, width)],
        [NOT_RANKED, *unranked] if unranked else [],
        [wrap(note, width, first_indent="  ", indent="    ") for note in table.footnotes],
        [wrap(sentence, width) for sentence in table.summary],
        published_block(table, width),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def table_width(study: StudyDocument, columns: Sequence[Column]) -> int:
    """Count the characters of the widest line of the table itself."""
    return max((len(line) for block in _layout(build_table(study, columns)) for line in block), default=0)


def _layout(table: StudyTable) -> tuple[list[str], list[str], list[str]]:
    """Lay out both blocks as one table, so that their columns align: header, ranked and unranked lines."""
    rows = [*table.ranked, *table.unranked]
    if not rows:
        return [], [], []
    columns = zip(*rows, strict=True)
    aligned = zip(*(_align_numbers(column) for column in columns), strict=True)
    header = ["\n".join(textwrap.wrap(title, MAX_TITLE_WIDTH, break_long_words=False)) for title in table.column_titles]
    # tabulate would parse and shorten numbers.
    text = tabulate(list(aligned), header, "simple", colalign=table.alignment, disable_numparse=True)
    lines = [line.rstrip() for line in text.splitlines()]
    first = len(lines) - len(rows)
    second = first + len(table.ranked)
    return lines[:first], lines[first:second], lines[second:]


def _align_numbers(column: Sequence[str]) -> list[str]:
    """Pad between each number and the text after it, so that both line up in a right-aligned column."""
    parts = [text.partition(" ") for text in column]
    width = max(len(rest) for _, _, rest in parts)
    return [f"{number}{space}{rest.rjust(width)}" if number else "" for number, space, rest in parts]


def _not_measured(table: StudyTable, width: int) -> list[str]:
    name_width = max(len(row[0]) for row in [*table.ranked, *table.unranked, *table.not_measured, table.column_titles])
    return [
        wrap(status, width, first_indent=f"{configuration:<{name_width}}  ", indent=" " * (name_width + 2))
        for configuration, status in table.not_measured
    ]


def published_block(table: StudyTable, width: int) -> list[str]:
    """Format the published results below a title; an empty list without any."""
    if not table.published:
        return []
    text = tabulate(table.published, table.published_titles, "simple", disable_numparse=True)
    lines = [line.rstrip() for line in text.splitlines()]
    return [
        published_results.TITLE,
        "",
        *lines,
        "",
        *(wrap(source, width, first_indent="  ") for source in table.sources),
    ]
