"""What GitHub's Markdown is put together from; `escape` makes a text of the study one of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tabulate import tabulate

Escape = Callable[[str], str]


def table(
    rows: Sequence[Sequence[str]], header: Sequence[str], alignment: Sequence[str], escape: Escape
) -> str:
    """A table with pipes; nothing without rows."""
    if not rows:
        return ""
    escaped = [[escape(text) for text in row] for row in rows]
    titles = [escape(title) for title in header]
    return tabulate(escaped, titles, "pipe", colalign=alignment, disable_numparse=True)


def bullets(texts: Iterable[str], escape: Escape) -> str:
    """A list."""
    return "\n".join(f"- {escape(text)}" for text in texts)


def lines(texts: Iterable[str], escape: Escape) -> str:
    """One below the other in one paragraph."""
    return "  \n".join(map(escape, texts))
