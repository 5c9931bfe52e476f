"""GitHub-flavoured Markdown, for issues and READMEs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polybench.render import published_results
from polybench.render.markdown_helpers import bullets, lines, table
from polybench.render.study_table import NOT_RANKED, Column, build_table
from polybench.schema.study import StudyDocument

_SPECIAL = re.compile(r"([\\`*|<])")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render the header, tables, one list of notes and the summary."""
    built = build_table(study, columns)
    blocks = (
        lines(built.header_lines, _escape),
        table(built.ranked, built.column_titles, built.alignment, _escape),
        f"**{NOT_RANKED}**" if built.unranked else "",
        table(built.unranked, built.column_titles, built.alignment, _escape),
        bullets(
            [
                *(f"{configuration}: {status}" for configuration, status in built.not_measured),
                *built.footnotes,
            ],
            _escape,
        ),
        lines(built.summary, _escape),
        f"**{published_results.TITLE}**" if built.published else "",
        table(built.published, built.published_titles, ["left"] * len(built.published_titles), _escape),
        bullets(built.sources, _escape),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
