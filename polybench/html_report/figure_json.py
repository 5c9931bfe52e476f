"""Figures and style templates as JSON for the script of a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polybench.figures.figure import template
from polybench.html_report.figures import FigureView


def figure_json(figures: Iterable[FigureView]) -> dict[str, Any]:
    """Collect traces and layouts by figure ID, and the light and dark templates."""
    return {
        "figures": {figure.id: {"data": figure.traces, "layout": figure.layout} for figure in figures},
        "light": template(),
        "dark": template(dark=True),
    }
