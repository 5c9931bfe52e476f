"""Output formats. ADD A FORMAT: a file with `render(table) -> str`, and its row here.

A module per kind of document (`study`, `sweep`, ...) converts a saved document to a `Table` for people
(`table`), and to records for programs (`records`).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

from polybench.plugins import Registry
from polybench.render.table import WIDTH, TableOptions
from polybench.schema.documents import kind_of

__all__ = ["EXPLANATION_FORMATS", "FORMATS", "WIDTH", "FormatSpec", "check_format", "render"]


class FormatSpec(NamedTuple):
    """Location and audience of a format.

    Attributes:
        function: module and function, as in "package.module:render"; "latex.render" is in this package.
        source: what the function receives: the `Table`, the records, or the document.
        summary: description for the documentation.
        has_width: True for terminal formats, whose function also receives the characters per line.
    """

    function: str
    source: Literal["table", "records", "document"]
    summary: str
    has_width: bool = False

    @property
    def for_humans(self) -> bool:
        """True for formats with the important columns that fit, and published results on request."""
        return self.source == "table"


FORMATS = Registry("format", FormatSpec)
FORMATS |= {
    "table": FormatSpec("terminal.render", "table", "plain text table for a terminal", has_width=True),
    "markdown": FormatSpec("markdown.render", "table", "GitHub-flavoured Markdown, for issues and READMEs"),
    "github": FormatSpec(
        "markdown.render_github", "table", "GitHub comment: summary and table, everything else in collapsed sections"
    ),
    "html": FormatSpec("html_table.render", "table", "self-contained HTML page, for printing, mail and wikis"),
    "csv": FormatSpec("csv.render", "records", "CSV: plain numbers in SI units"),
    "json": FormatSpec("", "document", "the whole document as JSON"),
    "latex": FormatSpec("latex.render", "table", "LaTeX table in booktabs style; the document must load booktabs"),
}
"""Formats of all documents, by their name for --format."""

EXPLANATION_FORMATS = ("table", "markdown", "json")


def check_format(name: str) -> str:
    """Return the name of a format; BadInput if it is unknown."""
    FORMATS.find(name)
    return name


def render(document: Any, format: str = "table", *, kind: str = "", width: int = WIDTH, **options: Any) -> str:
    """Render a document as text that ends with a newline.

    Args:
        document: a study or another document with a schema `polybench.KIND/VERSION`.
        format: a name in FORMATS.
        kind: the module that builds the table, if it is not KIND.
        width: characters per line, for formats with a width.
        **options: fields of `TableOptions`.

    Raises:
        BadInput: the format is unknown.
        ValueError: the format is json, and the document contains a number that JSON cannot represent.
    """
    spec = FORMATS.find(format)
    if not spec.function:
        from polybench.schema.encoding import encode

        return encode(document).decode()
    source = document
    if spec.source != "document":
        module = import_module(f"{__name__}.{kind or kind_of(document.schema)}")
        table_options = TableOptions(**options, width=width if spec.has_width else None)
        build = getattr(module, f"{format}_table", None) or getattr(module, spec.source)
        source = build(document, table_options)
    function = resolve_name(spec.function if ":" in spec.function else f"{__name__}.{spec.function}")
    text: str = function(source, *([width] if spec.has_width else []))
    return text
