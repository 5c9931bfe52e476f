"""Table of a study, shared by all formats with a human audience: rows by status, footnotes and summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from polybench.render import one_line, published_results
from polybench.render.footnotes import failed_parity, footnotes
from polybench.render.header import header_lines
from polybench.render.summary import summary_sentences
from polybench.schema import units
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

NOT_RANKED = "not ranked: failed the parity check"


class Column(Protocol):
    """Interface of a column, which every metric implements."""

    @property
    def name(self) -> str:
        """Key in machine formats."""
        ...

    @property
    def title(self) -> str:
        """Heading in human formats."""
        ...

    @property
    def unit(self) -> str | None:
        """Unit of `value`; None for words."""
        ...

    @property
    def value(self) -> Callable[[Result], float | str | None]:
        """Function that returns the value of a result; None without a source."""
        ...

    @property
    def interval(self) -> Callable[[Result], tuple[float, float] | None]:
        """Function that returns the 95 % interval in the unit of `value`, or None."""
        ...

    @property
    def unavailable_hint(self) -> str:
        """Condition under which the column has values."""
        ...

    @property
    def has_interval(self) -> bool:
        """True if results may have an interval."""
        ...

    def text(self, result: Result, /) -> str:
        """Format the text of a result; "" without a source."""
        ...


class StudyTable(msgspec.Struct, frozen=True):
    """All text of a table; a format only adds its syntax."""

    header_lines: list[str]
    """Lines above the table: workload, extent and machine."""
    column_titles: list[str]
    """Titles of the configuration and of each column."""
    alignment: list[str]
    """`left` or `right` for each column."""
    ranked: list[list[str]]
    """Rows that passed the parity check."""
    unranked: list[list[str]]
    """Rows that failed the parity check."""
    not_measured: list[tuple[str, str]]
    """Configurations without times, and their status."""
    footnotes: list[str]
    summary: list[str]
    """Comparisons in words."""
    published_titles: list[str]
    published: list[list[str]]
    """Published results, with titles of their own."""
    sources: list[str]
    """Sources of the published results, and reasons for missing ratios."""


def build_table(study: StudyDocument, columns: Sequence[Column]) -> StudyTable:
    """Build the table of a study, with rows in the order of measurement."""

    def row(result: Result) -> list[str]:
        return [result.configuration, *(column.text(result) for column in columns)]

    measured = published_results.from_study(study.results)
    return StudyTable(
        header_lines=[*([one_line(study.title)] if study.title else []), *header_lines(study)],
        column_titles=[
            "engine",
            *(units.with_input_kind(column.title, study.settings.input_kind) for column in columns),
        ],
        alignment=["left", *("left" if column.unit is None else "right" for column in columns)],
        ranked=[row(result) for result in study.results if result.is_ranked],
        unranked=[row(result) for result in study.results if failed_parity(result)],
        not_measured=[
            (result.configuration, status_text(result))
            for result in study.results
            if not result.is_ranked and not failed_parity(result)
        ],
        footnotes=[*footnotes(study, [column.name for column in columns]), *_empty_columns(study, columns)],
        summary=summary_sentences(study),
        published_titles=published_results.column_titles(study.published, measured),
        published=published_results.format_rows(study.published, measured),
        sources=published_results.format_notes(study.published, measured),
    )


def _empty_columns(study: StudyDocument, columns: Sequence[Column]) -> list[str]:
    """Explain why chosen columns have no values."""
    measured = [result for result in study.results if result.is_measured]
    empty: dict[str, list[str]] = {}
    for column in columns:
        if measured and not any(column.text(result) for result in measured):
            empty.setdefault(column.unavailable_hint, []).append(column.name)
    return [f"{', '.join(names)}: empty: {hint}" for hint, names in empty.items()]


def status_text(result: Result) -> str:
    """Describe why a configuration has no times, with a hint and the log file."""
    status = f"{result.status}: {one_line(result.reason)}" if result.reason else result.status
    hint = f" (hint: {one_line(result.hint)})" if result.hint else ""
    log = f" (log: {result.log_path})" if result.log_path else ""
    return f"{status}{hint}{log}"
