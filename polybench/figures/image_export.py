"""Export of figures, with title and caption, as files or plotly figures."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from polybench.errors import BadInput, EngineUnavailable, install_command, lookup_or_suggest
from polybench.figures.figure import Figure, escape_text, template
from polybench.render.study import header_for
from polybench.schema import units
from polybench.schema.analyses import HistoryDocument
from polybench.schema.measurements import OverheadDocument, PeakDocument, SweepDocument
from polybench.schema.result import library_versions
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.figures import Drawable

WIDTH = 900
"""Width in pixels; with SCALE about 320 pixels per inch in a column of 7 inches."""
SCALE = 2.5

FORMATS = ("svg", "png", "pdf", "html")

_LINE_HEIGHT = 15
_CHARACTER_WIDTH = 5.23
"""Width of a character of the caption in pixels."""
_CAPTION_OFFSET = 62
"""Pixels between the axis and the caption, for ticks, their labels and the axis title."""


def to_plotly(figure: Figure, caption: str = "", width: int = WIDTH) -> Any:
    """Convert to a plotly figure with the title above, and the note and the caption below."""
    lines = [line for part in (figure.note, caption) if part for line in wrap(part, int(width / _CHARACTER_WIDTH))]
    own_margin = figure.layout.get("margin", {})
    legend = _legend_lines(figure, width)
    margin = {
        "l": 64,
        "r": 24,
        "t": 52 + 22 * legend,
        "b": _CAPTION_OFFSET + _LINE_HEIGHT * len(lines) + 10,
    } | own_margin
    layout = figure.layout | {
        "template": _paper_template(),
        "title": {
            "text": f"<b>{escape_text(figure.title)}</b>", "font": {"size": 17},
            "xref": "container", "x": 14 / width, "xanchor": "left",
            "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 14},
        },
        "margin": margin,
        "height": figure.height + _LINE_HEIGHT * len(lines) + 22 * legend,
        "width": width,
        "annotations": [
            *figure.layout.get("annotations", []),
            {
                "text": "<br>".join(map(escape_text, lines)), "align": "left", "showarrow": False,
                "xref": "paper", "x": 0, "xanchor": "left", "xshift": 14 - margin["l"],
                "yref": "paper", "y": 0, "yanchor": "top", "yshift": -_CAPTION_OFFSET, "font": {"size": 11},
            },
        ],
    }  # fmt: skip
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise BadInput(f"plotly is not installed; {install_command('plot')}, or use rows()") from error
    return graph_objects.Figure(figure.traces, layout)


def file_format(path: Path) -> str:
    """Derive the file format from the suffix."""
    return lookup_or_suggest(path.suffix.removeprefix(".").lower(), {one: one for one in FORMATS}, "format")


def export(figure: Figure, caption: str, format: str, width: int = WIDTH) -> bytes:
    """Create the contents of a file; html needs neither a browser nor a network.

    Raises EngineUnavailable if kaleido or a browser is missing.
    """
    plotly_figure = to_plotly(figure, caption, width)
    if format == "html":
        page: str = plotly_figure.to_html(include_plotlyjs=True, config={"displaylogo": False})
        return page.encode()
    return _render_image(plotly_figure, format)


def _render_image(plotly_figure: Any, format: str) -> bytes:
    try:
        import kaleido
        from choreographer.errors import BrowserFailedError, ChromeNotFoundError
    except ImportError as error:
        raise _unavailable(format, "kaleido is not installed", install_command("plot")) from error
    try:
        image: bytes = kaleido.calc_fig_sync(plotly_figure, opts={"format": format, "scale": SCALE})
    except ChromeNotFoundError as error:
        hint = "install Chromium (apt install chromium), set BROWSER_PATH"
        raise _unavailable(format, "Chromium or Chrome is not installed", hint) from error
    except (BrowserFailedError, TimeoutError) as error:
        hint = "set BROWSER_PATH to a working browser"
        raise _unavailable(format, "the browser does not start", hint) from error
    return image


def _unavailable(format: str, reason: str, hint: str) -> EngineUnavailable:
    return EngineUnavailable(f"cannot create {format}: {reason}; {hint} or write .html instead", hint)


def _legend_lines(figure: Figure, full_width: int) -> int:
    """Estimate the number of lines of the legend above the figure."""
    if figure.layout.get("showlegend") is False:
        return 0
    in_legend = (one for one in figure.traces if one.get("showlegend", True))
    names = {str(one["name"]) for one in in_legend if one.get("name")}
    width = full_width - sum(figure.layout.get("margin", {}).get(side, 64) for side in "lr")
    return -(-sum(46 + round(6.3 * len(name)) for name in names) // width) if len(names) > 1 else 0


def _paper_template() -> dict[str, Any]:
    return {"layout": template()["layout"] | {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}}


def plotly_javascript() -> str:
    """Load plotly.js from the package plotly; raises BadInput without it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise BadInput(f"plotly is not installed; {install_command('report')}") from error
    text: str = get_plotlyjs()
    return text


def caption_for(document: Drawable) -> str:
    """Write a paragraph of plain text about the origin of a document: workload, machine, versions, date and ID."""
    if isinstance(document, HistoryDocument):
        series = [
            f"{units.format_model(one.model, one.pass_)} on {one.dataset}, {one.precision},"
            f" {units.plural(one.threads, 'thread')}, {one.cpu}"
            for one in document.series
        ]
        return ". ".join(dict.fromkeys(series)) + "."
    origin = f"{document.created.partition('T')[0]}, polybench {document.polybench.version}"
    if isinstance(document, OverheadDocument | SweepDocument | PeakDocument):
        host, workload = document.host, document.model
        if not isinstance(document, PeakDocument):
            workload = units.format_model(workload, document.pass_)
        if isinstance(document, OverheadDocument):
            workload = f"{workload}, {units.plural(document.threads, 'thread')}"
            origin = f"{origin}, {document.id}" if document.id else origin
        machine = f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}"
        return f"{workload}. {machine}. {origin}."
    results = document.results if isinstance(document, StudyDocument) else document.configurations
    header = header_for(document.settings, document.host, [one.step_times for one in results if one.step_times])
    packages = {name: version for one in results for name, version in library_versions(one.versions).items()}
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    return ". ".join(filter(None, (*header, versions, f"{origin}, {document.id}"))) + "."
