"""The table that all formats for people show: who is in it, in which block, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.footnotes import failed_parity, footnotes
from polybench.export.heading import heading
from polybench.export.one_line import one_line
from polybench.export.sentence import sentences

NOT_RANKED = "not ranked: did not do the same arithmetic"


class Column(Protocol):
    """What a column must have; a metric does."""

    @property
    def name(self) -> str:
        """For programs."""
        ...

    @property
    def title(self) -> str:
        """For people."""
        ...

    @property
    def unit(self) -> str | None:
        """Of `value`; None for words."""
        ...

    @property
    def value(self) -> Callable[[Result], float | str | None]:
        """None where there is no source."""
        ...

    @property
    def interval(self) -> Callable[[Result], tuple[float, float] | None]:
        """At the 95 % level, in the unit of `value`; None where there is none."""
        ...

    @property
    def needs(self) -> str:
        """What gives it a value."""
        ...

    @property
    def has_interval(self) -> bool:
        """Whether it can have one."""
        ...

    def text(self, result: Result, /) -> str:
        """What people see; "" where there is no source."""
        ...


class Table(msgspec.Struct, frozen=True):
    """All text of a comparison; a format adds syntax only."""

    heading: list[str]
    """What was measured, where: lines above the table."""
    header: list[str]
    """As in every row, the cell's name is first."""
    alignment: list[str]
    """`left` or `right`, of each column."""
    ranked: list[list[str]]
    """Rows that did the same arithmetic."""
    unranked: list[list[str]]
    """Rows that did not."""
    absent: list[tuple[str, str]]
    """The cells without times, with what became of them."""
    footnotes: list[str]
    sentences: list[str]
    """The comparisons in words."""
    published_header: list[str]
    published: list[list[str]]
    """Rows under that header of their own."""
    sources: list[str]
    """Where the published numbers are from, and why some have no ratio."""


def build(study: StudyDocument, columns: Sequence[Column]) -> Table:
    """The table of a study, rows in the order of measurement."""

    def row(result: Result) -> list[str]:
        return [result.cell, *(column.text(result) for column in columns)]

    here = published.of_study(study.results)
    return Table(
        heading=[*([one_line(study.title)] if study.title else []), *heading(study)],
        header=["cell", *(units.of_inputs(column.title, study.settings.unit) for column in columns)],
        alignment=["left", *("left" if column.unit is None else "right" for column in columns)],
        ranked=[row(result) for result in study.results if result.ranked],
        unranked=[row(result) for result in study.results if failed_parity(result)],
        absent=[
            (result.cell, outcome(result))
            for result in study.results
            if not result.ranked and not failed_parity(result)
        ],
        footnotes=[*footnotes(study, [column.name for column in columns]), *_empty(study, columns)],
        sentences=sentences(study),
        published_header=published.header(study.published, here),
        published=published.rows(study.published, here),
        sources=published.notes(study.published, here),
    )


def _empty(study: StudyDocument, columns: Sequence[Column]) -> list[str]:
    """Of columns that somebody chose and that nothing filled: what would."""
    measured = [result for result in study.results if result.measured]
    empty: dict[str, list[str]] = {}
    for column in columns:
        if measured and not any(column.text(result) for result in measured):
            empty.setdefault(column.needs, []).append(column.name)
    return [f"empty: {', '.join(names)}: {needs}" for needs, names in empty.items()]


def outcome(result: Result) -> str:
    """Why a cell has no times, and what to do."""
    outcome = f"{result.status}: {one_line(result.reason)}" if result.reason else result.status
    remedy = f" (remedy: {one_line(result.remedy)})" if result.remedy else ""
    log = f" (log: {result.log})" if result.log else ""
    return f"{outcome}{remedy}{log}"
