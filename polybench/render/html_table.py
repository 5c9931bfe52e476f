"""Self-contained HTML page with the tables, for printing, mail and wikis; contains no scripts."""

from __future__ import annotations

import html
from collections.abc import Iterator

from tabulate import tabulate

from polybench.render.table import Table
from polybench.schema.printable import printable

_STYLE = (
    "body{font-family:sans-serif;margin:1em}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2em .6em;border-bottom:1px solid #999}"
)


def render(table: Table) -> str:
    """Render the title, tables, notes and summary; all texts are escaped."""
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{_escape(next(iter(table.title), 'polybench'))}</title><style>{_STYLE}</style></head>",
        "<body>",
        *_content(table),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _content(table: Table) -> Iterator[str]:
    """Yield the lines inside of the page's body."""
    if table.title:
        yield f"<p>{'<br>'.join(map(_escape, table.title))}</p>"
    yield from (f"<p>{_escape(sentence)}</p>" for sentence in table.summary)
    if table.rows:
        rows = [list(map(printable, row)) for row in table.rows]
        titles = [printable(column.title) for column in table.columns]
        alignment = ["right" if column.numeric else "left" for column in table.columns]
        yield tabulate(rows, titles, "html", colalign=alignment, disable_numparse=True)
    for one in table.tables:
        yield from _content(one)
    notes = [*(f"{name}: {status}" for name, status in table.statuses), *table.notes, *table.more]
    if notes:
        yield from ("<ul>", *(f"<li>{_escape(note)}</li>" for note in notes), "</ul>")
    if table.published:
        yield from _content(table.published)


def _escape(text: str) -> str:
    return html.escape(printable(text))
