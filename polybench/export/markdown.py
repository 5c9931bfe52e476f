"""Markdown (GitHub's), for issues and READMEs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.rows import NOT_RANKED, Column, build

_SPECIAL = re.compile(r"([\\`*|<])")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Heading, tables, one list of notes, closing sentences."""
    table = build(study, columns)
    blocks = (
        "  \n".join(_escaped(line) for line in table.heading),
        _rows(table.ranked, table.header, table.alignment),
        f"**{NOT_RANKED}**" if table.unranked else "",
        _rows(table.unranked, table.header, table.alignment),
        _list([*(f"{cell}: {outcome}" for cell, outcome in table.absent), *table.footnotes]),
        "  \n".join(_escaped(sentence) for sentence in table.sentences),
        f"**{published.TITLE}**" if table.published else "",
        _rows(table.published, table.published_header, ["left"] * len(table.published_header)),
        _list(table.sources),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rows(rows: list[list[str]], header: list[str], alignment: list[str]) -> str:
    if not rows:
        return ""
    escaped = [[_escaped(text) for text in row] for row in rows]
    titles = [_escaped(title) for title in header]
    return tabulate(escaped, titles, "pipe", colalign=alignment, disable_numparse=True)


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
