"""What a page may load and run, for its Content-Security-Policy: programs and styles by their hashes."""

from __future__ import annotations

from polybench.page import programs

_NOTHING = "default-src 'none'; base-uri 'none'"
UNFRAMED = "frame-ancestors 'none'"
"""No page of others may show this one; counts in a header only."""


def of_figures() -> str:
    """Of a page with figures: the two programs, and styles inline, since plotly.js writes them.

    Raises:
        BadInput: plotly is not installed.
    """
    scripts = f"script-src {programs.own().source} {programs.plotly().source}"
    return f"{_NOTHING}; {scripts}; style-src 'unsafe-inline'; img-src data: blob:"


def of_text(css: str) -> str:
    """Of a page without programs, which has this style and no other."""
    return f"{_NOTHING}; style-src {programs.source(css)}; img-src data:"
