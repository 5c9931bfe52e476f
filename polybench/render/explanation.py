"""An explanation as text: a table of all configurations, a sentence per pair, and on request what to measure next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

import msgspec

from polybench.render import markdown, terminal
from polybench.render.milliseconds import Milliseconds
from polybench.render.table import WIDTH, Column, Table, name_column, one_line
from polybench.schema import units
from polybench.schema.analyses import ExplanationDocument, OperationDifference, Statement, StepPart
from polybench.schema.encoding import encode

_MAX_LAYERS = 6
"""Layers with a row of their own."""
_OF_WHOLE_STEP = ("beside the layers", "forward", "backward")
"""Parts that are shown below the whole step, and are not added up to it."""
_SMALL_LAYER = 0.05
"""Fraction of a step below which a layer is small."""
_MAX_SENTENCES = 8
_MIN_TEXT_WIDTH = 17
"""Characters of the largest difference, if there is no room for more."""
_MAY_BE_NEGATIVE = "between the layers"
_MISSING = "Not measured: "
"""Beginning of suggestions, whose list has this title."""
_NO_RESULT_NOTE = f"{units.NO_RESULT}: the interval of the time is too wide."
_LARGEST_DIFFERENCE = "largest difference"

_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[mµn]?s\b)")
"""Line breaks are not allowed here."""


def render(
    document: ExplanationDocument,
    format: str,
    width: int = WIDTH,
    *,
    suggest: bool = False,
    suggest_option: str = "--suggest",
) -> str:
    """Render in one of EXPLANATION_FORMATS, as text that ends with a newline.

    Args:
        document: the explanation.
        format: table, markdown or json, which contains everything.
        width: characters per line.
        suggest: add the recommendations and the suggested measurements.
        suggest_option: how to get them otherwise.
    """
    if format == "json":
        return encode(document).decode()
    as_markdown = format == "markdown"
    table = explanation_table(document, None if as_markdown else width)
    if not suggest:
        table = msgspec.structs.replace(table, more=[*table.more, *_hints(document, suggest_option)])
    text = markdown.render(table) if as_markdown else terminal.render(table, width)
    return "\n".join([text, *_suggestions(document, as_markdown, width)]) if suggest else text


def explanation_table(document: ExplanationDocument, width: int | None = None) -> Table:
    """Build the table of all configurations, with the sentences below it."""
    names, settings = document.names, document.settings
    formats = _formats(document.parts)
    what = "forward pass" if settings.pass_ == "forward" else "training step"
    how = " (each layer timed alone)" if document.layers else ""
    rows = _rows(document, formats)
    columns = [name_column("", width), *(Column(title, numeric=True) for title in names.values())]
    has_no_result = any(units.NO_RESULT in row for row, _ in rows)
    baseline = document.comparisons[0].baseline if document.comparisons else ""
    for number, name in enumerate(names, start=1):
        if name != baseline:
            columns[number] = columns[number]._replace(optional=number)
    table = Table(
        title=[f"Where a {what} of {settings.model} goes, in ms{how}"],
        columns=columns,
        rows=[row for row, _ in rows],
        statuses=[_status(one) for one in document.excluded],
        notes=[*_sentences(document.summary), *([_NO_RESULT_NOTE] if has_no_result else [])],
        more=[f"Layers: polybench show {document.layers}"] if document.layers else [],
    )
    texts = [_describe_difference(one, baseline, names, formats) for _, one in rows]
    room = None if width is None else width - terminal.table_width(table) - 2
    if not any(texts) or (room is not None and room < _MIN_TEXT_WIDTH):
        return table
    return msgspec.structs.replace(
        table,
        columns=[*columns, Column(_LARGEST_DIFFERENCE, width=room)],
        rows=[[*row, text] for row, text in zip(table.rows, texts, strict=True)],
    )


_DEFAULT = Milliseconds.for_step(0.01)


def _formats(parts: Sequence[StepPart]) -> dict[str, Milliseconds]:
    whole = next((part.seconds for part in parts if part.kind == "whole step"), {})
    return {name: Milliseconds.for_step(seconds) for name, seconds in whole.items()}


def _rows(
    document: ExplanationDocument, formats: Mapping[str, Milliseconds]
) -> list[tuple[list[str], OperationDifference | None]]:
    """Return the texts of each row, and the difference that its last column describes."""
    return [
        ([_label(part), *(_cell(part, name, formats) for name in document.names)], part.largest_difference)
        for part in _shown_parts(document.parts)
    ]


def _label(part: StepPart) -> str:
    return f"  {part.name}" if part.kind in _OF_WHOLE_STEP else part.name


def _cell(part: StepPart, name: str, formats: Mapping[str, Milliseconds]) -> str:
    seconds = part.seconds.get(name)
    if seconds is None:
        return ""
    format = formats.get(name, _DEFAULT)
    return format.format(seconds) if part.kind == _MAY_BE_NEGATIVE else format.format_part(seconds, part.ci95.get(name))


def _shown_parts(parts: Sequence[StepPart]) -> Iterator[StepPart]:
    """Yield the layers with the largest differences first, then the sum of the smaller layers, then the other parts."""
    whole = next((part.seconds for part in parts if part.kind == "whole step"), {})
    layers = [part for part in parts if part.kind == "layer"]
    large = [
        part
        for part in layers
        if any(seconds >= _SMALL_LAYER * whole.get(name, 0.0) for name, seconds in part.seconds.items())
    ]
    shown = sorted(large, key=_spread, reverse=True)[:_MAX_LAYERS]
    smaller = [part for part in layers if part not in shown]
    yield from shown
    if len(smaller) == 1:
        yield smaller[0]
    elif smaller:
        seconds = {name: sum(part.seconds.get(name, 0.0) for part in smaller) for name in smaller[0].seconds}
        yield StepPart(name=f"{len(smaller)} {'smaller' if shown else 'small'} layers", kind="layer", seconds=seconds)
    yield from (part for part in parts if part.kind != "layer")


def _spread(part: StepPart) -> float:
    """Return the largest difference of a layer; of a single configuration its time."""
    seconds = part.seconds.values()
    return max(seconds, default=0.0) - (min(seconds) if len(seconds) > 1 else 0.0)


def _describe_difference(
    found: OperationDifference | None, baseline: str, names: Mapping[str, str], formats: Mapping[str, Milliseconds]
) -> str:
    """Describe it as "flux weight gradient: 6.42 vs. 0.75"; the other one is named if it is not the baseline."""
    if found is None:
        return ""
    slow, fast = (formats.get(name, _DEFAULT) for name in (found.configuration, found.other))
    if slow.is_noise(found.seconds - found.other_seconds):
        return ""
    name, other = (names.get(name, name) for name in (found.configuration, found.other))
    whose = "" if found.other == baseline else f"{other} "
    both = f"{slow.format_part(found.seconds)} vs. {whose}{fast.format_part(found.other_seconds)}"
    return f"{name} {found.operation}: {both}"


def _status(statement: Statement) -> tuple[str, str]:
    name, _, reason = statement.text.partition(": ")
    return name, reason


def _sentences(summary: Sequence[Statement]) -> list[str]:
    """Return the sentences; of many, the largest differences and the last one."""
    texts = [one.text for one in summary]
    left_out = len(texts) - _MAX_SENTENCES
    if left_out <= 0:
        return texts
    return [*texts[: _MAX_SENTENCES - 2], f"({left_out + 1} more sentences: --format json)", texts[-1]]


def _hints(document: ExplanationDocument, option: str) -> Iterator[str]:
    """Yield how many suggestions there are."""
    counts = {
        "Measured to be faster": len(document.recommendations),
        "Not measured yet": len(document.suggested_measurements),
    }
    texts = [f"{title}: {count}" for title, count in counts.items() if count]
    if texts:
        yield f"{'; '.join(texts)}, {option}"


def _suggestions(document: ExplanationDocument, as_markdown: bool, width: int) -> Iterator[str]:
    lists = {
        "Measured to be faster": document.recommendations,
        "Not measured yet": document.suggested_measurements,
        "Not compared": document.excluded,
    }
    for title, statements in lists.items():
        if statements:
            heading = f"### {title}\n" if as_markdown else f"{title}\n{'-' * len(title)}"
            yield (
                "\n".join([heading, *(line for one in statements for line in _statement(one, as_markdown, width))])
                + "\n"
            )


def _statement(statement: Statement, as_markdown: bool, width: int) -> Iterator[str]:
    """Format a statement; its command stays on one line, to be copied."""
    escape = markdown.escape_markdown if as_markdown else one_line
    command = one_line(statement.command or "")
    text = f"- {escape(statement.text.removeprefix(_MISSING))}"
    if as_markdown:
        yield f"{text} {f'`{command}`' if '`' not in command else escape(command)}" if command else text
        return
    unbroken = _SPACE_BEFORE_UNIT.sub("\u00a0", text)
    lines = fill(unbroken, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield lines.replace("\u00a0", " ")
    if command:
        yield f"    {command}"
