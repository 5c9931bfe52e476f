"""Self-contained HTML page with the table, for printing, mail and wikis; contains no scripts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from polybench.render import published_results
from polybench.render.study_table import NOT_RANKED, Column, build_table
from polybench.schema.study import StudyDocument

_STYLE = (
    "body{font-family:sans-serif;margin:1em}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2em .6em;border-bottom:1px solid #999;text-align:left}.right{text-align:right}"
)


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render the header, tables, notes and summary; all texts of the study are escaped."""
    table = build_table(study, columns)
    notes = [
        *(f"{configuration}: {status}" for configuration, status in table.not_measured),
        *table.footnotes,
    ]
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{_escape(table.header_lines[0])}</title><style>{_STYLE}</style></head>",
        "<body>",
        f"<p>{'<br>'.join(map(_escape, table.header_lines))}</p>",
        *_table(None, table.column_titles, table.alignment, table.ranked),
        *_table(NOT_RANKED, table.column_titles, table.alignment, table.unranked),
        *_list(notes),
        *(f"<p>{_escape(sentence)}</p>" for sentence in table.summary),
        *_table(
            published_results.TITLE,
            table.published_titles,
            ["left"] * len(table.published_titles),
            table.published,
        ),
        *_list(table.sources),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _table(
    caption: str | None, titles: Sequence[str], alignment: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    if not rows:
        return []
    return [
        "<table>",
        *([f"<caption>{_escape(caption)}</caption>"] if caption else []),
        f"<thead>{_row('th', titles, alignment)}</thead>",
        "<tbody>",
        *(_row("td", row, alignment) for row in rows),
        "</tbody>",
        "</table>",
    ]


def _row(tag: str, texts: Iterable[str], alignment: Iterable[str]) -> str:
    cells = (
        f'<{tag} class="{"right" if side == "right" else "left"}">{_escape(text)}</{tag}>'
        for text, side in zip(texts, alignment, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _list(lines: Sequence[str]) -> list[str]:
    return ["<ul>", *(f"<li>{_escape(line)}</li>" for line in lines), "</ul>"] if lines else []


def _escape(text: str) -> str:
    return html.escape(text)
