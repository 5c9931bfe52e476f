"""GitHub-flavoured Markdown: for issues and READMEs, and as a comment with collapsed sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from tabulate import tabulate

from polybench.render.table import Table, one_line
from polybench.schema.printable import printable

Escape = Callable[[str], str]

_SPECIAL = re.compile(r"[\\`*\[\]<|]|~(?=~)|&(?=#?\w+;)")
_GITHUB_SPECIAL = re.compile(r"[\\`*_\[\]{}<>|~&!$]")
_REFERENCE = re.compile(r"(?:(?<!\w)@|#)(?=\w)")
_LIST_OR_TITLE = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+#](?:\s|$)|##|>|[-=]+$))")


def render(table: Table) -> str:
    """Render the title, tables, notes as lists, and the summary."""
    return "\n\n".join(filter(None, [_lines(table.title, escape_markdown), *_blocks(table, escape_markdown)])) + "\n"


def render_github(table: Table) -> str:
    """Render a comment: the summary and the tables; everything else is in `<details>`.

    All texts are escaped.
    """
    escape = _escape_for_github
    notes = [*table.notes, *table.further_notes]
    details = {
        "Workload and machine": _lines(table.title, escape),
        f"{len(notes)} {'note' if len(notes) == 1 else 'notes'}": _bullets(notes, escape),
    } | {
        title: _fenced(content) if isinstance(content, str) else _bullets(content, escape)
        for title, content in table.details.items()
    }
    blocks = [
        _lines(table.summary, lambda sentence: f"**{escape(sentence)}**"),
        *_tables(table, escape),
        _bullets(_status_lines(table), escape),
        *_published(table, escape),
        # GitHub parses the content as Markdown only between empty lines.
        *(f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" for title, text in details.items() if text),
        f"<sub>{escape(table.origin)}</sub>" if table.origin else "",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def format_rows(table: Table, escape: Escape | None = None) -> str:
    """Format the rows alone as a pipe table; "" without rows."""
    if not table.rows:
        return ""
    escape = escape or escape_markdown
    return tabulate(
        [[escape(text) for text in row] for row in table.rows],
        [escape(column.title) for column in table.columns],
        "pipe",
        colalign=["right" if column.numeric else "left" for column in table.columns],
        disable_numparse=True,
    )


def _blocks(table: Table, escape: Escape) -> Iterator[str]:
    yield _lines(table.summary, escape)
    yield from _tables(table, escape)
    yield _bullets([*_status_lines(table), *table.notes, *table.more], escape)
    yield from _published(table, escape)


def _tables(table: Table, escape: Escape) -> Iterator[str]:
    yield format_rows(table, escape)
    for one in table.tables:
        yield "  \n".join(f"**{escape(line)}**" for line in one.title)
        yield from _blocks(one, escape)


def _published(table: Table, escape: Escape) -> Iterator[str]:
    if table.published:
        yield from _tables(Table(tables=[table.published]), escape)


def _status_lines(table: Table) -> list[str]:
    return [f"{name}: {status}" for name, status in table.statuses]


def _bullets(texts: Iterable[str], escape: Escape) -> str:
    return "\n".join(f"- {escape(text)}" for text in texts)


def _lines(texts: Sequence[str], escape: Escape) -> str:
    """Format one paragraph with a line break after each text."""
    return "  \n".join(map(escape, texts))


def _fenced(text: str) -> str:
    """Format a code block whose fence is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}toml\n{printable(text).strip()}\n{fence}"


def escape_markdown(text: str, special: re.Pattern[str] = _SPECIAL) -> str:
    """Escape links, tags and other markup, and the start of a list, title or quotation."""
    return _LIST_OR_TITLE.sub(r"\1\\", special.sub(r"\\\g<0>", one_line(text)))


def _escape_for_github(text: str) -> str:
    """Escape mentions of users and links to issues as well, such as in `torch/cpu#2`."""
    return _REFERENCE.sub(r"\g<0><!-- -->", escape_markdown(text, _GITHUB_SPECIAL))
