"""Summaries of saved studies for lists and filters, decoded without step times."""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from polybench.schema.encoding import decode
from polybench.schema.metadata import InputKind
from polybench.schema.result import Result
from polybench.schema.study import SCHEMA


class FastestConfiguration(msgspec.Struct, frozen=True):
    """Ranked configuration with the shortest step."""

    configuration: str
    step_seconds: float


class FastestPoint(FastestConfiguration, frozen=True):
    """Configuration and point of a sweep with the most items per second, regardless of its step time."""

    items_per_second: float
    parameters: dict[str, int]
    """The point's values of the axes."""
    input_kind: InputKind


class SweepPoints(msgspec.Struct, frozen=True):
    """Points of a sweep, each of which is a saved study.

    Attributes:
        axes: the varied parameters with their values.
        studies: IDs of the studies that have started.
    """

    axes: dict[str, list[int]]
    studies: list[str]

    @property
    def point_count(self) -> int:
        """Return the number of points of the finished sweep."""
        return prod(map(len, self.axes.values()))


class ConfigurationSummary(msgspec.Struct, frozen=True):
    """Summary of a configuration; `versions` are those of its framework and libraries, as text."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    is_measured: bool
    versions: dict[str, str]


Kind = Literal["study", "sweep", "overhead"]


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a saved document. If it is unreadable, only `unreadable_reason` and the file are set."""

    file: str
    """Name without `.json`, which identifies the document."""
    started_at: float
    """Start of the study in seconds since 1970; if it is unknown, the time at which the file was written."""
    id: str = ""
    created: str | None = None
    title: str | None = None
    model: str = ""
    dataset: str = ""
    batch_size: int = 0
    hostname: str = ""
    finished: bool | None = None
    interrupted: bool = False
    configurations: list[ConfigurationSummary] = []
    fastest: FastestConfiguration | None = None
    unreadable_reason: str | None = None
    kind: Kind = "study"
    """Sweeps and overheads have batch size 0 and an empty data set, because their points may differ."""
    points: SweepPoints | None = None
    """None for a study."""


class _StepTime(msgspec.Struct, frozen=True):
    median: float


class _Parity(msgspec.Struct, frozen=True):
    status: str


class _Result(msgspec.Struct):
    configuration: str
    engine: str
    variant: str | None
    device: str
    status: str
    versions: dict[str, Any] = {}
    step_time: _StepTime | None = None
    parity: _Parity = _Parity("skipped")


class _Settings(msgspec.Struct):
    model: str
    dataset: str
    batch_size: int


class _Host(msgspec.Struct):
    hostname: str


class _Document(msgspec.Struct):
    """The fields of `StudyDocument` that summaries need. Skipping step times makes decoding fast."""

    id: str
    created: str
    settings: _Settings
    host: _Host
    finished: bool | None = None
    title: str | None = None
    results: list[_Result] = []


def summarize_study(file: str, text: bytes, written: float) -> StudySummary:
    """Summarize a document, or return the reason why it is unreadable.

    Args:
        file: its name without `.json`.
        text: its content.
        written: modification time, in seconds since 1970.
    """
    try:
        document = decode(text, _Document, SCHEMA)
    except msgspec.MsgspecError as error:
        return StudySummary(file=file, started_at=written, unreadable_reason=str(error))
    ranked = [
        FastestConfiguration(one.configuration, one.step_time.median)
        for one in document.results
        if one.step_time is not None and one.status != "failed" and one.parity.status != "fail"
    ]
    started_at = parse_time(document.created)
    return StudySummary(
        file=file,
        started_at=written if started_at is None else started_at,
        id=document.id,
        created=document.created,
        title=document.title,
        model=document.settings.model,
        dataset=document.settings.dataset,
        batch_size=document.settings.batch_size,
        hostname=document.host.hostname,
        finished=document.finished,
        interrupted=any(one.status == "interrupted" for one in document.results),
        configurations=[summarize_configuration(one) for one in document.results],
        fastest=min(ranked, key=lambda one: one.step_seconds, default=None),
    )


def summarize_configuration(one: _Result | Result) -> ConfigurationSummary:
    """Summarize a result."""
    versions = {name: str(value) for name, value in one.versions.items() if not isinstance(value, dict)}
    return ConfigurationSummary(
        one.configuration, one.engine, one.variant, one.device, one.step_time is not None, versions
    )


def parse_time(created: str) -> float | None:
    """Return seconds since 1970 of an ISO 8601 time, by default in UTC; None if it is invalid."""
    try:
        time = datetime.datetime.fromisoformat(created)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class Filters(NamedTuple):
    """Criteria that select studies. None matches everything. Names may contain `*` and `?`.

    Attributes:
        engine: of a configuration: `torch` with any variant, or `torch+compile`.
        model: name of the model.
        device: of a configuration.
        host: name of the host.
        since: earliest start, in seconds since 1970.
        until: studies started before this time, in seconds since 1970.
        versions: of a configuration's framework or libraries, by name: `2.13` matches 2.13.0 and 2.13.1.
    """

    engine: str | None = None
    model: str | None = None
    device: str | None = None
    host: str | None = None
    since: float | None = None
    until: float | None = None
    versions: Sequence[tuple[str, str]] = ()

    def matches(self, study: StudySummary) -> bool:
        """Return True if the study matches. Unreadable studies match only without any criterion."""
        if self == NO_FILTERS or study.unreadable_reason is not None:
            return self == NO_FILTERS
        return (
            _matches_name(self.model, study.model)
            and _matches_name(self.host, study.hostname)
            and (self.since is None or self.since <= study.started_at)
            and (self.until is None or study.started_at < self.until)
            and any(self.matches_configuration(configuration) for configuration in study.configurations)
        )

    def matches_configuration(self, configuration: ConfigurationSummary) -> bool:
        """Return True if engine, device and versions match."""
        names = (configuration.engine, "+".join(filter(None, (configuration.engine, configuration.variant))))
        return (
            any(_matches_name(self.engine, name) for name in names)
            and _matches_name(self.device, configuration.device)
            and all(_has_version(configuration.versions, *version) for version in self.versions)
        )


def _matches_name(pattern: str | None, name: str) -> bool:
    return pattern is None or fnmatch.fnmatchcase(name, pattern)


def _has_version(versions: dict[str, str], library: str, number: str) -> bool:
    return any(
        name.lower() == library.lower() and re.match(rf"{re.escape(number)}($|[^0-9])", value)
        for name, value in versions.items()
    )


NO_FILTERS = Filters()
