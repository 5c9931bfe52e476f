"""An explanation as text: comparisons with a breakdown each, recommendations, suggested measurements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import fill

from polybench.render import markdown, terminal
from polybench.render.study import header_for
from polybench.render.table import WIDTH, Table, number_columns, one_line, text_columns, wrap
from polybench.schema import units
from polybench.schema.analyses import Breakdown, Component, ExplainedComparison, ExplanationDocument, Statement
from polybench.schema.encoding import encode

_MAX_COMPONENTS = 8
"""Rows of a breakdown; the smaller components share a row. JSON contains all of them."""

_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[mµn]?s\b)")
"""Line breaks are not allowed here."""


def render(document: ExplanationDocument, format: str, width: int = WIDTH) -> str:
    """Render in one of EXPLANATION_FORMATS, as text that ends with a newline."""
    if format == "json":
        return encode(document).decode()
    workload, _, machine = header_for(document.settings, document.host, [])
    line_break = "  \n" if format == "markdown" else "\n"
    escape = _escape(as_markdown=format == "markdown")
    lines = [f"study {document.study}", workload, machine]
    header = line_break.join(escape(line) if format == "markdown" else wrap(line, width, indent="  ") for line in lines)
    return f"{header}\n\n{render_body(document, format, width)}"


def render_body(document: ExplanationDocument, format: str, width: int = WIDTH) -> str:
    """Render without the header, as table or markdown, to follow the study's own table."""
    as_markdown = format == "markdown"
    blocks = [block for comparison in document.comparisons for block in _comparison(comparison, as_markdown, width)]
    lists = {
        "Recommendations": document.recommendations,
        "Suggested measurements": document.suggested_measurements,
        "Not compared": document.excluded,
    }
    for title, statements in lists.items():
        if statements:
            blocks += [_title(title, as_markdown), _bullets(statements, as_markdown, width)]
    return "\n\n".join(blocks) + "\n"


def _comparison(comparison: ExplainedComparison, as_markdown: bool, width: int) -> Iterator[str]:
    yield _title(f"{comparison.configuration} vs. {comparison.baseline}", as_markdown)
    yield _bullets(comparison.statements, as_markdown, width)
    breakdown = comparison.breakdown("layers") or comparison.breakdown("batch size")
    if breakdown is not None:
        built = breakdown_table(comparison, breakdown)
        yield markdown.format_rows(built) if as_markdown else terminal.format_rows(terminal.fit(built, width))


def _escape(*, as_markdown: bool) -> Callable[[str], str]:
    return markdown.escape_markdown if as_markdown else one_line


def _title(text: str, as_markdown: bool) -> str:
    text = _escape(as_markdown=as_markdown)(text)
    return f"### {text}" if as_markdown else f"{text}\n{'-' * len(text)}"


def _bullets(statements: Sequence[Statement], as_markdown: bool, width: int) -> str:
    return "\n".join(line for statement in statements for line in _statement(statement, as_markdown, width))


def _statement(statement: Statement, as_markdown: bool, width: int) -> Iterator[str]:
    """Format a statement; its command stays on one line, to be copied."""
    escape, command = _escape(as_markdown=as_markdown), one_line(statement.command or "")
    text = f"- {escape(statement.text)} [{escape(statement.evidence)}]"
    if as_markdown:
        yield f"{text} {f'`{command}`' if '`' not in command else escape(command)}" if command else text
        return
    unbroken = _SPACE_BEFORE_UNIT.sub("\u00a0", text)
    lines = fill(unbroken, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield lines.replace("\u00a0", " ")
    if command:
        yield f"    {command}"


def breakdown_table(comparison: ExplainedComparison, breakdown: Breakdown) -> Table:
    """Build the table of a breakdown; the last row is the sum of the others."""
    largest = sorted(breakdown.components, key=lambda one: -abs(one.difference_seconds))[:_MAX_COMPONENTS]
    others = [component for component in breakdown.components if component not in largest]
    rows = [(one.name, [one]) for one in breakdown.components if one in largest]
    if others:
        rows.append((units.plural(len(others), "other component"), others))
    rows += [(f"unattributed: {one.name}", [one]) for one in breakdown.unattributed]
    total = breakdown.difference_seconds
    name = "cold start" if breakdown.kind == "start" else "step"
    whole = [name, units.format_seconds(breakdown.seconds), units.format_seconds(breakdown.baseline_seconds)]
    whole += [units.format_signed_seconds(total), "100.0%" if total else ""]
    numbers = number_columns(comparison.configuration, comparison.baseline, "difference", "share")
    return Table(
        columns=[*text_columns("component"), *numbers],
        rows=[*([name, *_sum(components, total)] for name, components in rows), whole],
    )


def _sum(components: Sequence[Component], total: float) -> list[str]:
    """Format the sums over components: the seconds of both configurations, their difference and its share."""
    both = (
        [value for one in components if (value := getattr(one, name)) is not None]
        for name in ("seconds", "baseline_seconds")
    )
    difference = sum(component.difference_seconds for component in components)
    return [
        *(units.format_seconds(sum(values)) if values else "" for values in both),
        units.format_signed_seconds(difference),
        f"{100 * difference / total:.1f}%" if total else "",
    ]
