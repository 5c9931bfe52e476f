"""Summaries of saved studies for lists and filters. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec

from polybench.schema.documents import split_point_id
from polybench.schema.metadata import UNKNOWN_HOST, Host, InputKind, Settings
from polybench.schema.options import LogKind, Pass, Workload
from polybench.schema.result import EndedResult, Result
from polybench.schema.study import StudyDocument


def parse_time(created: str) -> float | None:
    """Return seconds since 1970 of an ISO 8601 time, by default in UTC; None if it is invalid."""
    try:
        time = datetime.datetime.fromisoformat(created)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class FastestConfiguration(msgspec.Struct, frozen=True):
    """Ranked configuration with the shortest step."""

    configuration: str
    step_seconds: float
    inconclusive: bool
    """True if another one may be faster: single processes, or interference."""


class FastestPoint(FastestConfiguration, frozen=True):
    """Configuration and point of a sweep with the most items per second, regardless of its step time."""

    items_per_second: float
    parameters: Mapping[str, int]
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


class ConfigurationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a configuration; a study's has a step time if it was measured, its workload and its end."""

    configuration: str
    engine: str
    variant: str | None
    device: str
    is_measured: bool
    step_seconds: float | None = None
    workload: Workload | None = None
    variables: tuple[dict[str, str], dict[str, str]] = ({}, {})
    """Environment variables of the workers, and of the user."""
    ended: EndedResult = EndedResult()


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a log. If it is unreadable, only `unreadable_reason` and the file are set."""

    file: str = ""
    """Name without its suffix, which identifies the document."""
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
    conditions: tuple[str, ...] = ()
    """Data, policy of malloc, pinned CPUs and operating system."""
    finished: bool | None = None
    """False if a study was killed, or is still running."""
    interrupted: bool = False
    configurations: list[ConfigurationSummary] = []
    fastest: FastestConfiguration | None = None
    unreadable_reason: str | None = None
    kind: LogKind = "study"
    """Sweeps and overheads have batch size 0 and an empty data set, because their points may differ."""
    points: SweepPoints | None = None
    """None for a study."""

    @property
    def sweep(self) -> str | None:
        """The ID of the sweep or overhead of which this study is a point."""
        return (split_point_id(self.id) or (None,))[0]

    @property
    def is_resumable(self) -> bool:
        """True if this can go on, or is a point of a sweep that can."""
        return self.unreadable_reason is None and (self.finished is False or self.interrupted)


def summarize(document: StudyDocument) -> StudySummary:
    """Summarize a study."""
    own = settings_fields(document.settings, document.host) | {"finished": document.finished}
    own["interrupted"] = any(one.status == "interrupted" for one in document.results)
    own |= ranked_fields([summarize_configuration(one) for one in document.results])
    return StudySummary(**(head_fields(document) | {"hostname": document.host.hostname} | own))


def head_fields(one: Any) -> dict[str, Any]:
    """Return the fields that a header and a document have."""
    return {
        "file": one.id,
        "started_at": parse_time(one.created) or 0.0,
        "id": one.id,
        "created": one.created,
        "title": one.title,
        "tags": one.tags,
    }


def settings_fields(settings: Settings, host: Host) -> dict[str, Any]:
    """Return the fields that settings and machine have."""
    is_known = host.hostname != UNKNOWN_HOST
    return {
        "model": settings.model,
        "pass_": settings.pass_,
        "dataset": settings.dataset,
        "batch_size": settings.batch_size,
        "machine": ", ".join((host.hostname, host.cpu, str(host.cores), *host.gpus)) if is_known else "",
        "conditions": (settings.data_sha256, settings.malloc, str(bool(settings.pinned_cpus)), host.os),
    }


def ranked_fields(configurations: list[ConfigurationSummary]) -> dict[str, Any]:
    """Return the configurations and the fastest one."""
    ranked = [(one.step_seconds, one) for one in configurations if one.step_seconds and one.ended.is_for_production]
    inconclusive = any(one.ended.is_inconclusive for _, one in ranked)
    seconds, best = min(ranked, key=lambda one: one[0], default=(0.0, None))
    fastest = best and FastestConfiguration(best.configuration, seconds, inconclusive)
    return {"configurations": configurations, "fastest": fastest}


def summarize_configuration(one: Result) -> ConfigurationSummary:
    """Summarize a result."""
    return ConfigurationSummary(
        configuration=one.configuration,
        engine=one.engine,
        variant=one.variant,
        device=one.device,
        is_measured=one.is_measured,
        step_seconds=one.step_time.mean if one.step_time else None,
        workload=one.workload,
        variables=(one.versions.get("environment", {}), one.versions.get("inherited", {})),
        ended=EndedResult.of(one),
    )
