"""Markdown (GitHub's), for issues and READMEs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.markdown_blocks import bullets, lines, table
from polybench.export.rows import NOT_RANKED, Column, build

_SPECIAL = re.compile(r"([\\`*|<])")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Heading, tables, one list of notes, closing sentences."""
    shown = build(study, columns)
    blocks = (
        lines(shown.heading, _escaped),
        table(shown.ranked, shown.header, shown.alignment, _escaped),
        f"**{NOT_RANKED}**" if shown.unranked else "",
        table(shown.unranked, shown.header, shown.alignment, _escaped),
        bullets([*(f"{cell}: {outcome}" for cell, outcome in shown.absent), *shown.footnotes], _escaped),
        lines(shown.sentences, _escaped),
        f"**{published.TITLE}**" if shown.published else "",
        table(shown.published, shown.published_header, ["left"] * len(shown.published_header), _escaped),
        bullets(shown.sources, _escaped),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
