"""LaTeX table in booktabs style; the document must load booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import LATEX_ESCAPE_RULES, tabulate

from polybench.render import published_results
from polybench.render.study_table import NOT_RANKED, Column, build_table
from polybench.schema.study import StudyDocument

_INVALID_IN_LABELS = re.compile(r"[^A-Za-z0-9-]+")
"""Characters that labels or packages do not accept."""


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render a `table` environment in UTF-8 with the caption above and notes below.

    The label is `tab:` plus the study's ID.
    """
    table = build_table(study, columns)
    notes = [
        *(f"{configuration}: {status}" for configuration, status in table.not_measured),
        *table.footnotes,
        *table.summary,
        *table.sources,
    ]
    left = ["left"] * len(table.published_titles)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape('; '.join(table.header_lines))}}}",
        rf"\label{{tab:{_INVALID_IN_LABELS.sub('-', study.id)}}}",
        *_rows(table.ranked, table.column_titles, table.alignment),
        *_block(NOT_RANKED, table.unranked, table.column_titles, table.alignment),
        *_block(published_results.TITLE, table.published, table.published_titles, left),
        r"\par\smallskip\footnotesize\raggedright",
        *(rf"{_escape(note)}\par" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _block(title: str, rows: list[list[str]], titles: list[str], alignment: list[str]) -> list[str]:
    return [rf"\par\medskip {title}\par\smallskip", *_rows(rows, titles, alignment)] if rows else []


def _rows(rows: list[list[str]], titles: list[str], alignment: list[str]) -> list[str]:
    if not rows:
        return []
    return tabulate(rows, titles, "latex_booktabs", colalign=alignment, disable_numparse=True).splitlines()


def _escape(text: str) -> str:
    """Escape text by the rules that tabulate applies to table cells."""
    return "".join(LATEX_ESCAPE_RULES.get(character, character) for character in text)
