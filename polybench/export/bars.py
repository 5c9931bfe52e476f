"""Bars in a terminal: a block for each column with numbers, the longest bar for the largest."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export import WIDTH
from polybench.export.rows import Column, build
from polybench.export.terminal import published_block, wrapped

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


def render(study: StudyDocument, columns: Sequence[Column], width: int = WIDTH) -> str:
    """Heading, bars, cells without times, notes and closing sentences; no colour, no escape sequences.

    Columns of words have no bars; rows that did not do the same arithmetic are marked.
    """
    table = build(study, columns)
    measured = [result for result in study.results if result.measured]
    blocks = [
        [wrapped(line, width, rest="  ") for line in table.heading],
        *(
            _block(column, measured, width, study.settings.unit)
            for column in columns
            if column.unit is not None
        ),
    ]
    blocks.append([wrapped(f"{cell}: {outcome}", width) for cell, outcome in table.absent])
    if table.unranked:
        names = ", ".join(row[0] for row in table.unranked)
        blocks.append([wrapped(f"* not ranked, did not do the same arithmetic: {names}", width)])
    blocks.append([wrapped(note, width, first="  ", rest="    ") for note in table.footnotes])
    blocks.append([wrapped(sentence, width) for sentence in table.sentences])
    blocks.append(published_block(table, width))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _block(column: Column, results: Sequence[Result], width: int, unit: str) -> list[str]:
    """Empty where no row has a number above 0."""
    rows = [(result, column.value(result), column.text(result)) for result in results]
    numbers = [(one, value, text) for one, value, text in rows if isinstance(value, int | float)]
    longest = max((value for _, value, _ in numbers), default=0.0)
    if longest <= 0:
        return []
    names = [result.cell + "*" * (not result.ranked) for result, _, _ in numbers]
    longest_name = max(map(len, names))
    room = max(width - longest_name - 4 - max(len(text) for *_, text in numbers), 10)
    return [
        units.of_inputs(column.title, unit),
        *(
            f"  {name:<{longest_name}} {_bar(value / longest, room)} {text}".rstrip()
            for name, (_, value, text) in zip(names, numbers, strict=True)
        ),
    ]


def _bar(share: float, room: int) -> str:
    """To an eighth of a character."""
    eighths = round(8 * room * max(share, 0.0))
    return (_FULL * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip() or _EIGHTHS[1]
