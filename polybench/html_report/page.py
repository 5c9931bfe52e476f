"""Parts of every page: escaped templates, the two scripts, the Content-Security-Policy and the figures.

A page contains plotly.js compressed and as plain text. Browsers therefore show the page before they decompress
the 5 MB of plotly.js, and the page has less than half of that size.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from polybench.errors import BadInput, __version__, install_command
from polybench.figures import FIGURES, Kind, draw
from polybench.figures.figure import DARK_COLOURS, Figure, NoData, engine_colour
from polybench.figures.figure import template as figure_template
from polybench.figures.image_export import plotly_javascript
from polybench.schema.metadata import Host, ToolVersion
from polybench.schema.printable import printable

if TYPE_CHECKING:
    from polybench.figures import Drawable


View = dict[str, Any]
"""Values that a template shows."""


def render_page(template: str, figures: Sequence[FigureView], *, root: str | None, **values: Any) -> str:
    """Render a page, with plotly.js if it has figures; raises BadInput if jinja2 or plotly is not installed.

    Args:
        template: extends `base.html.j2`.
        figures: all figures of the page.
        root: relative path from the page to the folder of all pages, "" or "../"; None for a file on its own.
        values: what the template shows.
    """
    text: str = (
        _environment()
        .get_template(template)
        .render(
            version=__version__,
            css=_read_template("report.css"),
            csp=_content_security_policy(),
            report_script=_report_script(),
            plotly_script=plotly_script(),
            figure_json={
                "figures": {figure.id: {"data": figure.traces, "layout": figure.layout} for figure in figures},
                "light": figure_template(),
                "dark": figure_template(dark=True),
                "darkColours": DARK_COLOURS,
            },
            root=root,
            **values,
        )
    )
    return text


def _read_template(name: str) -> str:
    """Read a file of the folder of templates."""
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise BadInput(f"jinja2 is not installed; {install_command('report')}") from error
    environment = Environment(
        loader=PackageLoader("polybench.html_report"),
        autoescape=True,
        undefined=StrictUndefined,
        # Other types of text are markup, which is escaped already.
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def soft_break(name: str) -> Markup:
        """Allow line breaks after `+` and `/`, as in `torch+channels_last/cpu`."""
        return Markup(re.sub(r"([+/])", r"\1<wbr>", str(escape(printable(name)))))

    def keep_options(text: str) -> Markup:
        """Prevent line breaks inside of options, as in `--same-machine`."""
        return Markup(re.sub(r"(--[a-z][a-z-]+)", r'<span class="option">\1</span>', str(escape(printable(text)))))

    def headings(section: Markup) -> list[tuple[str, Markup]]:
        """List IDs and titles of the headings of a section, for its table of contents."""
        return [(one, Markup(title)) for one, title in re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', section)]

    def swatch(configuration: str) -> str:
        """Return the colour of an engine in the figures, as CSS for both themes."""
        colour = engine_colour(configuration)
        return f"light-dark({colour}, {DARK_COLOURS[colour]})"

    environment.filters |= {
        "soft_break": soft_break,
        "keep_options": keep_options,
        "headings": headings,
        "swatch": swatch,
    }
    return environment


class Script(NamedTuple):
    """A script in the page."""

    text: str
    """JavaScript; for plotly.js, compressed with gzip and encoded as base64."""
    csp_hash: str
    """Entry in the policy, 'sha256-...'."""


def _report_script() -> Script:
    """Load the script that sorts, filters and draws."""
    text = _read_template("report.js")
    return Script(text, _csp_hash(text))


@cache
def plotly_script() -> Script:
    """Load plotly.js from the package plotly; raises BadInput without it."""
    text = plotly_javascript()
    compressed = gzip.compress(text.encode(), mtime=0)
    return Script(base64.b64encode(compressed).decode(), _csp_hash(text))


def _csp_hash(text: str) -> str:
    """Hash a script or style sheet for a policy: 'sha256-...'."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _content_security_policy() -> str:
    """Build the policy of every page: two scripts, and inline styles, which plotly.js needs."""
    scripts = f"script-src {_report_script().csp_hash} {plotly_script().csp_hash}"
    styles = "style-src 'unsafe-inline'; img-src data: blob:"
    return f"default-src 'none'; base-uri 'none'; form-action 'none'; {scripts}; {styles}"


_MARGIN = {"t": 24, "b": 56, "l": 64, "r": 24}


class FigureView(NamedTuple):
    """A figure with its texts, and data for plotly.js."""

    id: str
    name: str
    kind: str
    title: str
    note: str
    numbers: Sequence[str]
    """The figure as text."""
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


def figure_views(documents: Mapping[Kind, Drawable], prefix: str) -> Iterator[FigureView]:
    """Yield the figures of reports for which the documents contain data."""
    for name, spec in FIGURES.rows().items():
        if spec.kind in documents:
            try:
                yield make_figure_view(draw(name, documents[spec.kind]), name, prefix)
            except NoData:
                continue


def make_figure_view(figure: Figure, name: str, prefix: str) -> FigureView:
    """Convert a figure of the table; its element ID starts with `prefix`."""
    return convert_figure(figure, name, FIGURES.find(name).kind, prefix)


def convert_figure(figure: Figure, name: str, kind: str, prefix: str) -> FigureView:
    """Convert a figure of a kind of document; its element ID starts with `prefix`."""
    layout = figure.layout | {"height": figure.height, "margin": _MARGIN | figure.layout.get("margin", {})}
    texts = figure.title, figure.note, figure.text_alternative
    return FigureView(f"{prefix}-{name}", name, kind, *texts, figure.traces, layout)


def format_command(argv: Sequence[str]) -> str:
    """Format the command line; "" for studies from Python, whose first argument is a file."""
    word, *_ = argv or [""]
    return shlex.join(["polybench", *argv]) if word.isalpha() else ""


def environment_rows(host: Host, tool: ToolVersion) -> list[tuple[str, str]]:
    """List names and values of the environment."""
    return [
        ("machine", host.hostname),
        ("processor", f"{host.cpu}, {host.cores} cores, {host.threads} threads"),
        *([("GPU", ", ".join(host.gpus))] if host.gpus else []),
        ("memory", f"{host.memory_bytes / 2**30:.1f} GiB"),
        ("system", host.os),
        ("Python", host.python),
        ("polybench", tool.version + (f", {tool.commit}" if tool.commit else "")),
    ]
