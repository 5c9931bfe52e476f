"""What lists and filters need of a saved study, read without its samples."""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from polybench.core.document.circumstances import Unit
from polybench.core.document.result import Result
from polybench.core.document.study import check_schema, decoded


class Fastest(msgspec.Struct, frozen=True):
    """The ranked cell of the shortest step."""

    cell: str
    seconds_per_step: float


class FastestPoint(Fastest, frozen=True):
    """The cell and point of a sweep with the most images or sequences a second; its step may not be short."""

    samples_per_second: float
    values: dict[str, int]
    """Of the axes, at this point."""
    unit: Unit


class Points(msgspec.Struct, frozen=True):
    """Of a study at several points, each a saved study by itself.

    Attributes:
        axes: what is varied, with its values.
        studies: IDs of the points that were begun.
    """

    axes: dict[str, list[int]]
    studies: list[str]

    @property
    def planned(self) -> int:
        """How many points there are when it is finished."""
        return prod(map(len, self.axes.values()))


class ListedCell(msgspec.Struct, frozen=True):
    """One cell: `versions` are those of its framework and libraries, as text."""

    cell: str
    engine: str
    variant: str | None
    device: str
    measured: bool
    versions: dict[str, str]


Kind = Literal["study", "sweep", "overhead"]


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One saved document; of one that cannot be read `unreadable` says why, and the rest is empty."""

    file: str
    """Its name without `.json`, by which it is found."""
    when: float
    """Seconds since 1970 at which the study began; of one that does not tell, when its file was written."""
    id: str = ""
    created: str | None = None
    title: str | None = None
    model: str = ""
    dataset: str = ""
    batch_size: int = 0
    hostname: str = ""
    finished: bool | None = None
    interrupted: bool = False
    cells: list[ListedCell] = []
    fastest: Fastest | None = None
    unreadable: str | None = None
    kind: Kind = "study"
    """Where it is no study the batch size is 0 and the data set empty: each point may have another."""
    points: Points | None = None
    """Of a study null."""


class _Step(msgspec.Struct, frozen=True):
    median: float


class _Parity(msgspec.Struct, frozen=True):
    status: str


class _Result(msgspec.Struct):
    cell: str
    engine: str
    variant: str | None
    device: str
    status: str
    versions: dict[str, Any] = {}
    step_seconds: _Step | None = None
    parity: _Parity = _Parity("skipped")


class _Settings(msgspec.Struct):
    model: str
    dataset: str
    batch_size: int


class _Host(msgspec.Struct):
    hostname: str


class _Document(msgspec.Struct):
    """The part of `StudyDocument` that is looked at; the samples are passed over."""

    id: str
    created: str
    settings: _Settings
    host: _Host
    finished: bool | None = None
    title: str | None = None
    results: list[_Result] = []


def listed(file: str, text: bytes, written: float) -> Listed:
    """What the document says, or why it cannot be read.

    Args:
        file: its name without `.json`.
        text: its content.
        written: when it was, in seconds since 1970.
    """
    try:
        check_schema(text)
        document = decoded(text, _Document)
    except msgspec.MsgspecError as error:
        return Listed(file=file, when=written, unreadable=str(error))
    ranked = [
        Fastest(one.cell, one.step_seconds.median)
        for one in document.results
        if one.step_seconds is not None and one.status != "failed" and one.parity.status != "fail"
    ]
    when = seconds_of(document.created)
    return Listed(
        file=file,
        when=written if when is None else when,
        id=document.id,
        created=document.created,
        title=document.title,
        model=document.settings.model,
        dataset=document.settings.dataset,
        batch_size=document.settings.batch_size,
        hostname=document.host.hostname,
        finished=document.finished,
        interrupted=any(one.status == "interrupted" for one in document.results),
        cells=[listed_cell(one) for one in document.results],
        fastest=min(ranked, key=lambda one: one.seconds_per_step, default=None),
    )


def listed_cell(one: _Result | Result) -> ListedCell:
    """The same of a result."""
    versions = {name: str(value) for name, value in one.versions.items() if not isinstance(value, dict)}
    return ListedCell(one.cell, one.engine, one.variant, one.device, one.step_seconds is not None, versions)


def seconds_of(created: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 time, in UTC where it does not say; None where it is none."""
    try:
        time = datetime.datetime.fromisoformat(created)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class Filters(NamedTuple):
    """Which studies are wanted; None is all. Names may have `*` and `?`.

    Attributes:
        engine: of a cell: `torch` is any of its variants, `torch+compile` this one.
        model: its name.
        device: of a cell.
        host: its name.
        since: the first time, in seconds since 1970.
        until: the time before which it began.
        versions: of a cell's framework or libraries, by name: `2.13` is 2.13.0 and 2.13.1, too.
    """

    engine: str | None = None
    model: str | None = None
    device: str | None = None
    host: str | None = None
    since: float | None = None
    until: float | None = None
    versions: Sequence[tuple[str, str]] = ()

    def has(self, study: Listed) -> bool:
        """Whether the study is wanted; one that cannot be read is, where anything is."""
        if self == EVERYTHING or study.unreadable is not None:
            return self == EVERYTHING
        return (
            _fits(self.model, study.model)
            and _fits(self.host, study.hostname)
            and (self.since is None or self.since <= study.when)
            and (self.until is None or study.when < self.until)
            and any(self.has_cell(cell) for cell in study.cells)
        )

    def has_cell(self, cell: ListedCell) -> bool:
        """Whether engine, device and versions are those that are wanted."""
        names = (cell.engine, "+".join(filter(None, (cell.engine, cell.variant))))
        return (
            any(_fits(self.engine, name) for name in names)
            and _fits(self.device, cell.device)
            and all(_has_version(cell.versions, *version) for version in self.versions)
        )


def _fits(wanted: str | None, name: str) -> bool:
    return wanted is None or fnmatch.fnmatchcase(name, wanted)


def _has_version(versions: dict[str, str], wanted: str, number: str) -> bool:
    return any(
        name.lower() == wanted.lower() and re.match(rf"{re.escape(number)}($|[^0-9])", value)
        for name, value in versions.items()
    )


EVERYTHING = Filters()
