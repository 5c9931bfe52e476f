"""What a page's program draws: figures as plotly.js takes them, and how they look on paper and screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polybench.page.figures import Shown
from polybench.plots.style import template


def drawings(figures: Iterable[Shown]) -> dict[str, Any]:
    """For the JSON that a page carries. What no screen resolves was left out as the figures were made."""
    return {
        "figures": {figure.id: {"data": figure.traces, "layout": figure.layout} for figure in figures},
        "light": template(),
        "dark": template(dark=True),
    }
