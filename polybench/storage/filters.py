"""Filters of saved studies and their configurations."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polybench.errors import BadInput
from polybench.results.summaries import parse_time
from polybench.schema.result import library_versions

if TYPE_CHECKING:
    from polybench.results.summaries import ConfigurationSummary, StudySummary


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
            and all(_has_version(library_versions(configuration.ended.versions), *version) for version in self.versions)
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
