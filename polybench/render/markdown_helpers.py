"""Building blocks of GitHub-flavoured Markdown; `escape` is applied to all texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tabulate import tabulate

Escape = Callable[[str], str]


def table(rows: Sequence[Sequence[str]], titles: Sequence[str], alignment: Sequence[str], escape: Escape) -> str:
    """Format a pipe table; "" without rows."""
    if not rows:
        return ""
    escaped = [[escape(text) for text in row] for row in rows]
    header = [escape(title) for title in titles]
    return tabulate(escaped, header, "pipe", colalign=alignment, disable_numparse=True)


def bullets(texts: Iterable[str], escape: Escape) -> str:
    """Format a bullet list."""
    return "\n".join(f"- {escape(text)}" for text in texts)


def lines(texts: Iterable[str], escape: Escape) -> str:
    """Format one paragraph with a line break after each text."""
    return "  \n".join(map(escape, texts))
