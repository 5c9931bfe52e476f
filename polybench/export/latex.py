"""A LaTeX table in the style of booktabs, which the document must load."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import LATEX_ESCAPE_RULES, tabulate

from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.rows import NOT_RANKED, Column, build

_LABEL = re.compile(r"[^A-Za-z0-9-]+")
"""What a label may not have, or what packages make something else of."""


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """A `table` environment, caption above, notes below, for a document in UTF-8.

    Its label is `tab:` and the study's ID.
    """
    table = build(study, columns)
    notes = [
        *(f"{cell}: {outcome}" for cell, outcome in table.absent),
        *table.footnotes,
        *table.sentences,
        *table.sources,
    ]
    authors = ["left"] * len(table.published_header)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped('; '.join(table.heading))}}}",
        rf"\label{{tab:{_LABEL.sub('-', study.id)}}}",
        *_rows(table.ranked, table.header, table.alignment),
        *_block(NOT_RANKED, table.unranked, table.header, table.alignment),
        *_block(published.TITLE, table.published, table.published_header, authors),
        r"\par\smallskip\footnotesize\raggedright",
        *(rf"{_escaped(note)}\par" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _block(title: str, rows: list[list[str]], header: list[str], alignment: list[str]) -> list[str]:
    return [rf"\par\medskip {title}\par\smallskip", *_rows(rows, header, alignment)] if rows else []


def _rows(rows: list[list[str]], header: list[str], alignment: list[str]) -> list[str]:
    if not rows:
        return []
    return tabulate(rows, header, "latex_booktabs", colalign=alignment, disable_numparse=True).splitlines()


def _escaped(text: str) -> str:
    """By the rules that tabulate applies to cells."""
    return "".join(LATEX_ESCAPE_RULES.get(character, character) for character in text)
