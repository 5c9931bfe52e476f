"""Self-contained HTML page with the tables, for printing, mail and wikis; contains no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from polybench.render.table import Column, Table

_STYLE = (
    "body{font-family:sans-serif;margin:1em}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2em .6em;border-bottom:1px solid #999;text-align:left}.right{text-align:right}"
)


def render(table: Table) -> str:
    """Render the title, tables, notes and summary; all texts are escaped."""
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(next(iter(table.title), 'polybench'))}</title><style>{_STYLE}</style></head>",
        "<body>",
        *_paragraph(table.title),
        *_content(table, ""),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _content(table: Table, caption: str) -> Iterator[str]:
    if table.rows:
        yield "<table>"
        if caption:
            yield f"<caption>{escape(caption)}</caption>"
        yield f"<thead>{_row('th', (column.title for column in table.columns), table.columns)}</thead>"
        yield "<tbody>"
        yield from (_row("td", row, table.columns) for row in table.rows)
        yield from ("</tbody>", "</table>")
    for one in table.tables:
        yield from _further(one)
    notes = [*(f"{name}: {status}" for name, status in table.statuses), *table.notes]
    if notes:
        yield from ("<ul>", *(f"<li>{escape(note)}</li>" for note in notes), "</ul>")
    yield from (f"<p>{escape(sentence)}</p>" for sentence in table.summary)
    if table.published:
        yield from _further(table.published)


def _further(table: Table) -> Iterator[str]:
    """Render a table below another one, with one line of title as its caption."""
    is_caption = len(table.title) == 1 and bool(table.rows)
    if not is_caption:
        yield from _paragraph(table.title)
    yield from _content(table, table.title[0] if is_caption else "")


def _paragraph(lines: Sequence[str]) -> list[str]:
    return [f"<p>{'<br>'.join(map(escape, lines))}</p>"] if lines else []


def _row(tag: str, texts: Iterable[str], columns: Iterable[Column]) -> str:
    cells = (
        f'<{tag} class="{"right" if column.numeric else "left"}">{escape(text)}</{tag}>'
        for text, column in zip(texts, columns, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"
