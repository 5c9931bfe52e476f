"""Summaries of saved studies for lists and filters, decoded without step times."""

from __future__ import annotations

import datetime
import fnmatch
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from polybench.errors import BadInput
from polybench.schema.encoding import decode
from polybench.schema.measurements import LAYERS_SCHEMA, OverheadDocument, SweepDocument
from polybench.schema.metadata import InputKind
from polybench.schema.options import RENAME, EngineName, Id, Pass, Positive
from polybench.schema.resources import Interference
from polybench.schema.result import Interval, Result, library_versions
from polybench.schema.study import SCHEMA
from polybench.storage.anonymize import UNKNOWN_HOST


class FastestConfiguration(msgspec.Struct, frozen=True):
    """Ranked configuration with the shortest step."""

    configuration: str
    step_seconds: float
    inconclusive: bool
    """True if another one may be faster: single processes, or interference."""


class FastestPoint(FastestConfiguration, frozen=True):
    """Configuration and point of a sweep with the most items per second, regardless of its step time."""

    items_per_second: float
    parameters: dict[str, int]
    """The point's values of the axes."""
    input_kind: InputKind


class SweepPoints(msgspec.Struct, frozen=True):
    """The varied parameters of a sweep with their values, and the IDs of the studies that have started."""

    axes: dict[str, list[int]]
    studies: list[str]

    @property
    def point_count(self) -> int:
        """Return the number of points of the finished sweep."""
        return prod(map(len, self.axes.values()))


class MeasuredStep(msgspec.Struct, frozen=True):
    """Step times over several processes without excessive interference."""

    group: str
    """Equal for results of the same configuration, settings and versions, also of the operating system."""
    processes: int
    seconds: float
    ci95: Interval | None


class ConfigurationSummary(msgspec.Struct, frozen=True):
    """Summary of a configuration; `versions` are those of its framework and libraries, as text."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    is_measured: bool
    versions: dict[str, str]
    step: MeasuredStep | None


Kind = Literal["study", "sweep", "overhead", "layers"]


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a saved document. If it is unreadable, only `unreadable_reason` and the file are set."""

    file: str = ""
    """Name without `.json`, which identifies the document."""
    started_at: float = 0.0
    """Start of the study in seconds since 1970; if it is unknown, the time at which the file was written."""
    id: str = ""
    created: str | None = None
    title: str | None = None
    tags: list[str] = []
    model: str = ""
    pass_: Pass = "training"
    dataset: str = ""
    batch_size: int = 0
    hostname: str = ""
    machine: str = ""
    """Host name and hardware; empty if the host name is unknown."""
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
    mean: Positive
    ci95: tuple[Positive, Positive] | None = None


class _StepTimes(msgspec.Struct, frozen=True):
    values: list[list[msgspec.Raw]]
    """As [process][round]."""


class _Parity(msgspec.Struct, frozen=True):
    status: str


class _Comparison(msgspec.Struct, frozen=True):
    baseline: str
    scope: str = "processes"
    inconclusive_reason: str | None = None


class PartialResult(msgspec.Struct):
    """The fields of a `Result` that summaries need."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    status: str
    versions: dict[str, Any] = {}
    workload: Any = None
    step_time: _StepTime | None = None
    vs_baseline: _Comparison | None = None
    step_times: _StepTimes | None = None
    interference: Interference = Interference()
    caveat: str | None = None
    parity: _Parity = _Parity("skipped")


class _Settings(msgspec.Struct, rename=RENAME):
    model: str
    dataset: str
    batch_size: int
    data_sha256: str = ""
    malloc: str = ""
    pinned_cpus: list[int] = []
    pass_: Pass = "training"


class _Host(msgspec.Struct):
    hostname: str
    os: str = ""
    cpu: str = ""
    cores: int = 0
    gpus: list[str] = []


class PartialDocument(msgspec.Struct):
    """The fields of `StudyDocument` that summaries need. Skipping step times makes decoding fast."""

    id: Id
    created: str
    settings: _Settings
    host: _Host
    finished: bool | None = None
    title: str | None = None
    tags: Sequence[str] = ()
    results: Sequence[PartialResult] = ()


def summarize_document(file: str, text: bytes, written: float, kind: Kind = "study") -> StudySummary:
    """Summarize a document that was written at this time, or return the reason why it is unreadable.

    `file` is its name without `.json`.
    """
    try:
        summary = SUMMARIZE[kind](text)
        check_file_name(summary.id, file)
    except msgspec.MsgspecError as error:
        return StudySummary(file=file, started_at=written, unreadable_reason=str(error), kind=kind)
    started_at = parse_time(summary.created or "")
    return msgspec.structs.replace(summary, file=file, started_at=written if started_at is None else started_at)


def check_file_name(id: str | None, file: str) -> None:
    """Raise msgspec.ValidationError unless the ID of a document in the results folder is the name of its file."""
    if id != file:
        raise msgspec.ValidationError(f"its ID is {id!r}: expected the name of its file: rename the file to its ID")


def _summarize_study(text: bytes) -> StudySummary:
    document = decode(text, PartialDocument, SCHEMA)
    host = document.host
    ranked = [
        (one.step_time.mean, one)
        for one in document.results
        if one.step_time is not None and one.status != "failed" and one.parity.status != "fail" and one.caveat is None
    ]
    compared = [
        one.vs_baseline for _, one in ranked if one.vs_baseline and one.vs_baseline.baseline != one.configuration
    ]
    inconclusive = any(one.inconclusive_reason or one.scope == "single_process" for one in compared)
    fastest = min(ranked, key=lambda one: one[0], default=None)
    return StudySummary(
        id=document.id,
        created=document.created,
        title=document.title,
        tags=[*document.tags],
        model=document.settings.model,
        pass_=document.settings.pass_,
        dataset=document.settings.dataset,
        batch_size=document.settings.batch_size,
        hostname=host.hostname,
        machine=""
        if host.hostname == UNKNOWN_HOST
        else ", ".join((host.hostname, host.cpu, str(host.cores), *host.gpus)),
        finished=document.finished,
        interrupted=any(one.status == "interrupted" for one in document.results),
        configurations=[summarize_configuration(one, _measured_step(document, one)) for one in document.results],
        fastest=fastest and FastestConfiguration(fastest[1].configuration, fastest[0], inconclusive),
    )


def _summarize_sweep(text: bytes) -> StudySummary:
    """Summarize a sweep; summaries of its studies have the details."""
    sweep = decode(text, SweepDocument)
    rows = [(point.parameters, one) for point in sweep.points for one in point.configurations]
    inconclusive = sweep.inconclusive_reason is not None
    measured = [
        FastestPoint(
            one.configuration, one.step_seconds, inconclusive, one.items_per_second, parameters, sweep.input_kind
        )
        for parameters, one in rows
        if one.step_seconds is not None and one.items_per_second is not None and one.caveat is None
    ]
    points = SweepPoints(sweep.axes, [point.id for point in sweep.points])
    summary = _summarize_points(sweep, "sweep", points, [one.status for _, one in rows])
    return msgspec.structs.replace(
        summary,
        configurations=[_summarize_name(curve.configuration) for curve in sweep.curves],
        fastest=max(measured, key=lambda one: one.items_per_second, default=None),
    )


def _summarize_overhead(text: bytes) -> StudySummary:
    """Summarize an overhead. It has no fastest configuration, because each one is a line over batch sizes."""
    overhead = decode(text, OverheadDocument)
    points = SweepPoints({"batch_size": overhead.batch_sizes}, overhead.studies)
    summary = _summarize_points(overhead, "overhead", points, [one.status for one in overhead.configurations])
    configurations = [
        ConfigurationSummary(
            one.configuration, one.engine, one.variant, one.device, one.overhead_seconds is not None, {}, None
        )
        for one in overhead.configurations
    ]
    return msgspec.structs.replace(summary, configurations=configurations)


class _PartialLayers(msgspec.Struct):
    """The fields of a `ConfigurationLayers` that summaries need."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    status: str
    parity: str
    step_seconds: Positive | None = None
    step_ci95: Interval | None = None
    versions: dict[str, Any] = {}


class _PartialLayersDocument(msgspec.Struct):
    """The fields of `LayersDocument` that summaries need."""

    id: Id
    created: str
    settings: _Settings
    host: _Host
    configurations: Sequence[_PartialLayers] = ()


def _summarize_layers(text: bytes) -> StudySummary:
    """Summarize layers. The fastest step is inconclusive if the interval of another one reaches below its own."""
    document = decode(text, _PartialLayersDocument, LAYERS_SCHEMA)
    settings = document.settings
    ranked = [
        (one.step_seconds, one)
        for one in document.configurations
        if one.step_seconds is not None and one.status != "failed" and one.parity != "fail"
    ]
    ranked.sort(key=lambda found: found[0])
    intervals = [one.step_ci95 for _, one in ranked]
    inconclusive = any(one is None or intervals[0] is None or one[0] <= intervals[0][1] for one in intervals[1:])
    return StudySummary(
        id=document.id,
        created=document.created,
        model=settings.model,
        pass_=settings.pass_,
        dataset=settings.dataset,
        batch_size=settings.batch_size,
        hostname=document.host.hostname,
        interrupted=any(one.status == "interrupted" for one in document.configurations),
        configurations=[
            ConfigurationSummary(
                one.configuration,
                one.engine,
                one.variant,
                one.device,
                one.step_seconds is not None,
                library_versions(one.versions),
                None,
            )
            for one in document.configurations
        ],
        fastest=FastestConfiguration(ranked[0][1].configuration, ranked[0][0], inconclusive) if ranked else None,
        kind="layers",
    )


def _summarize_points(
    document: SweepDocument | OverheadDocument, kind: Kind, points: SweepPoints, statuses: Sequence[str]
) -> StudySummary:
    return StudySummary(
        id=document.id or "",
        created=document.created,
        title=document.title,
        tags=[*document.tags],
        model=document.model,
        pass_=document.pass_,
        hostname=document.host.hostname,
        finished=len(points.studies) == points.point_count and "interrupted" not in statuses,
        kind=kind,
        points=points,
    )


SUMMARIZE: dict[Kind, Callable[[bytes], StudySummary]] = {
    "study": _summarize_study,
    "sweep": _summarize_sweep,
    "overhead": _summarize_overhead,
    "layers": _summarize_layers,
}


def summarize_configuration(one: PartialResult | Result, step: MeasuredStep | None = None) -> ConfigurationSummary:
    """Summarize a result."""
    versions = library_versions(one.versions)
    return ConfigurationSummary(
        one.configuration, one.engine, one.variant, one.device, one.step_time is not None, versions, step
    )


def _measured_step(document: PartialDocument, one: PartialResult) -> MeasuredStep | None:
    """Return the step of a complete result of several processes; None if it cannot be compared with others."""
    step, settings = one.step_time, document.settings
    rounds = one.step_times.values if one.step_times else []
    processes = sum(any(bytes(times) != b"[]" for times in process) for process in rounds)
    if one.status != "ok" or one.parity.status == "fail" or one.interference.is_excessive or processes < 2 or not step:
        return None
    conditions = settings.data_sha256, settings.malloc, bool(settings.pinned_cpus), document.host.os
    same = one.configuration, one.workload, one.versions, conditions
    group = zlib.crc32(msgspec.json.encode(same, order="sorted"))
    return MeasuredStep(f"{group:08x}", processes, step.mean, step.ci95)


def _summarize_name(configuration: str) -> ConfigurationSummary:
    """Summarize a configuration by its name alone, which may be anything in a foreign document."""
    engine, _, rest = configuration.partition("/")
    variants = ""
    with suppress(BadInput):
        parsed = EngineName.parse(engine)
        engine, variants = parsed.engine, "+".join(parsed.variants)
    return ConfigurationSummary(configuration, engine, variants or None, rest.partition("/")[0], True, {}, None)


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
        since: earliest start, in seconds since 1970.
        until: studies started before this time.
        versions: of a configuration's framework or libraries, by name: `2.13` matches 2.13.0 and 2.13.1.
        tags: all of them must match one of the study's.
    """

    engine: str | None = None
    model: str | None = None
    device: str | None = None
    host: str | None = None
    since: float | None = None
    until: float | None = None
    versions: Sequence[tuple[str, str]] = ()
    title: str | None = None
    tags: Sequence[str] = ()

    def matches(self, study: StudySummary) -> bool:
        """Return True if the study matches. Unreadable studies match only without any criterion."""
        if self == NO_FILTERS or study.unreadable_reason is not None:
            return self == NO_FILTERS
        return (
            _matches_name(self.model, study.model)
            and _matches_name(self.host, study.hostname)
            and _matches_name(self.title, study.title or "")
            and all(any(_matches_name(pattern, tag) for tag in study.tags) for pattern in self.tags)
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


FILTER_NAMES = ("engine", "model", "device", "host", "since", "until", "title")
"""Filters that may be given once; there may be several versions and tags."""


def filters_from_text(
    given: Mapping[str, str | None], versions: Sequence[str], tags: Sequence[str], prefix: str = "--"
) -> Filters:
    """Parse filters by their names, and versions such as `torch=2.13`; None or a missing name matches everything.

    Raises:
        BadInput: a date or version is invalid; `prefix` precedes the filter's name.
    """
    engine, model, device, host, since, until, title = (given.get(name) or None for name in FILTER_NAMES)
    return Filters(
        engine,
        model,
        device,
        host,
        _time(since, f"{prefix}since"),
        _time(until, f"{prefix}until", end=True),
        tuple(_version(text, f"{prefix}version") for text in versions),
        title,
        tuple(tags),
    )


def _version(text: str, option: str) -> tuple[str, str]:
    name, _, number = text.partition("=")
    if not name or not number:
        raise BadInput(f"{option} {text!r}: expected NAME=NUMBER, such as {option} torch=2.13")
    return name, number


def _time(text: str | None, option: str, *, end: bool = False) -> float | None:
    """Return seconds since 1970; for a date without time its start, or its end with `end`."""
    if text is None:
        return None
    seconds = parse_time(text)
    if seconds is None:
        expected = "expected a date such as 2026-11-01 or 2026-11-01T13:30"
        raise BadInput(f"{option} {text!r}: invalid date: {expected}")
    return seconds + 86400 if end and len(text) <= len("2026-11-01") else seconds


def sweep_by_point(summaries: Sequence[StudySummary]) -> dict[str, str]:
    """Map the IDs of studies that are points of a sweep or overhead to its ID."""
    return {id: one.id for one in summaries if one.points is not None for id in one.points.studies}


def drop_resumable(sweeps: Sequence[StudySummary], resumable: Sequence[StudySummary]) -> list[StudySummary]:
    """Return the sweeps without a resumable run; an interrupted sweep has a document as well."""
    studies = {id for one in resumable if one.points is not None for id in one.points.studies}
    return [one for one in sweeps if one.points is None or studies.isdisjoint(one.points.studies)]


def filter_summaries(summaries: Sequence[StudySummary], filters: Filters) -> list[StudySummary]:
    """Return the matching summaries in their order, and the sweeps with a matching study.

    A sweep itself has no versions, and it started when its first study did.
    """
    matching = {one.file for one in summaries if filters.matches(one)}
    return [
        one
        for one in summaries
        if one.file in matching or (one.points is not None and not matching.isdisjoint(one.points.studies))
    ]
