"""Content-Security-Policy of a page: allows scripts and styles by their hashes."""

from __future__ import annotations

from polybench.html_report import scripts

_DEFAULT = "default-src 'none'; base-uri 'none'"
NO_FRAMING = "frame-ancestors 'none'"
"""Prevents other sites from embedding a page; browsers ignore it outside of headers."""


def csp_with_figures() -> str:
    """Build the policy of a page with figures: two scripts, and inline styles, which plotly.js needs.

    Raises:
        BadInput: plotly is not installed.
    """
    allowed = f"script-src {scripts.report_script().csp_hash} {scripts.plotly_script().csp_hash}"
    return f"{_DEFAULT}; {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def csp_without_scripts(css: str) -> str:
    """Build the policy of a page with this style sheet and without scripts."""
    return f"{_DEFAULT}; style-src {scripts.csp_hash(css)}; img-src data:"
