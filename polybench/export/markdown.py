"""Markdown (GitHub's), for issues and READMEs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from polybench.core.results import StudyDocument
from polybench.export.rows import NOT_RANKED, Column, Table, build

_SPECIAL = re.compile(r"([\\`*|<])")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Heading, tables, one list of notes, closing sentences."""
    table = build(study, columns)
    blocks = (
        "  \n".join(_escaped(line) for line in table.heading),
        _rows(table, table.ranked),
        f"**{NOT_RANKED}**" if table.unranked else "",
        _rows(table, table.unranked),
        _list([*(f"{cell}: {fate}" for cell, fate in table.absent), *table.footnotes]),
        "  \n".join(_escaped(sentence) for sentence in table.sentences),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rows(table: Table, rows: list[list[str]]) -> str:
    if not rows:
        return ""
    escaped = [[_escaped(text) for text in row] for row in rows]
    header = [_escaped(title) for title in table.header]
    return tabulate(escaped, header, "pipe", colalign=table.alignment, disable_numparse=True)


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
