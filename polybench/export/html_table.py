"""A page with the table, to print, send or put into a wiki: no script, no style of others, nothing loaded."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.rows import NOT_RANKED, Column, build

_STYLE = (
    "body{font-family:sans-serif;margin:1em}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2em .6em;border-bottom:1px solid #999;text-align:left}.right{text-align:right}"
)


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Heading, tables, notes and closing sentences; every text of the study is escaped."""
    table = build(study, columns)
    notes = [*(f"{cell}: {outcome}" for cell, outcome in table.absent), *table.footnotes]
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{_escaped(table.heading[0])}</title><style>{_STYLE}</style></head>",
        "<body>",
        f"<p>{'<br>'.join(map(_escaped, table.heading))}</p>",
        *_rows(None, table.header, table.alignment, table.ranked),
        *_rows(NOT_RANKED, table.header, table.alignment, table.unranked),
        *_list(notes),
        *(f"<p>{_escaped(sentence)}</p>" for sentence in table.sentences),
        *_rows(
            published.TITLE, table.published_header, ["left"] * len(table.published_header), table.published
        ),
        *_list(table.sources),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _rows(
    caption: str | None, header: Sequence[str], alignment: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    if not rows:
        return []
    return [
        "<table>",
        *([f"<caption>{_escaped(caption)}</caption>"] if caption else []),
        f"<thead>{_row('th', header, alignment)}</thead>",
        "<tbody>",
        *(_row("td", row, alignment) for row in rows),
        "</tbody>",
        "</table>",
    ]


def _row(tag: str, texts: Iterable[str], alignment: Iterable[str]) -> str:
    cells = (
        f'<{tag} class="{"right" if side == "right" else "left"}">{_escaped(text)}</{tag}>'
        for text, side in zip(texts, alignment, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _list(lines: Sequence[str]) -> list[str]:
    return ["<ul>", *(f"<li>{_escaped(line)}</li>" for line in lines), "</ul>"] if lines else []


def _escaped(text: str) -> str:
    return html.escape(text)
