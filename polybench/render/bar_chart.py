"""Bar chart for a terminal: a block for each numeric column; the largest value has the longest bar."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.render import WIDTH
from polybench.render.study_table import Column, build_table
from polybench.render.tables import wrap
from polybench.render.terminal import published_block
from polybench.schema import units
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
_MIN_BAR_WIDTH = 10


def render(study: StudyDocument, columns: Sequence[Column], width: int = WIDTH) -> str:
    """Render the header, the bars, configurations without times, footnotes and the summary.

    Columns of words have no bars. An asterisk marks rows that failed the parity check. The text contains
    neither colours nor escape sequences.
    """
    table = build_table(study, columns)
    measured = [result for result in study.results if result.is_measured]
    blocks = [
        [wrap(line, width, indent="  ") for line in table.header_lines],
        *(
            _bar_block(column, measured, width, study.settings.input_kind)
            for column in columns
            if column.unit is not None
        ),
    ]
    blocks.append([wrap(f"{configuration}: {status}", width) for configuration, status in table.not_measured])
    if table.unranked:
        names = ", ".join(row[0] for row in table.unranked)
        blocks.append([wrap(f"* not ranked (failed the parity check): {names}", width)])
    blocks.append([wrap(note, width, first_indent="  ", indent="    ") for note in table.footnotes])
    blocks.append([wrap(sentence, width) for sentence in table.summary])
    blocks.append(published_block(table, width))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _bar_block(column: Column, results: Sequence[Result], width: int, input_kind: str) -> list[str]:
    """Draw a column's bars; an empty list if no value is above 0."""
    values = [(result, column.value(result), column.text(result)) for result in results]
    numbers = [(result, value, text) for result, value, text in values if isinstance(value, int | float)]
    largest = max((value for _, value, _ in numbers), default=0.0)
    if largest <= 0:
        return []
    names = [result.configuration + "*" * (not result.is_ranked) for result, _, _ in numbers]
    name_width = max(map(len, names))
    bar_width = max(width - name_width - 4 - max(len(text) for *_, text in numbers), _MIN_BAR_WIDTH)
    return [
        units.with_input_kind(column.title, input_kind),
        *(
            f"  {name:<{name_width}} {_bar(value / largest, bar_width)} {text}".rstrip()
            for name, (_, value, text) in zip(names, numbers, strict=True)
        ),
    ]


def _bar(fraction: float, width: int) -> str:
    """Draw a bar with a resolution of an eighth of a character."""
    eighths = round(8 * width * max(fraction, 0.0))
    return (_FULL * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip() or _EIGHTHS[1]
