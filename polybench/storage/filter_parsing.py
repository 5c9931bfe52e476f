"""Parses filters of saved studies, from the command line or from the form of a page."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from polybench.errors import BadInput
from polybench.storage.study_summary import Filters

FILTER_NAMES = ("engine", "model", "device", "host", "since", "until")
"""Filters that may be given once; there may be several versions."""


def filters_from_text(given: Mapping[str, str | None], versions: Sequence[str], prefix: str = "--") -> Filters:
    """Parse filters.

    Args:
        given: texts by name, of FILTER_NAMES; None or a missing name matches everything.
        versions: texts such as `torch=2.13`.
        prefix: precedes a filter's name in error messages.

    Raises:
        BadInput: a date or version is invalid.
    """
    engine, model, device, host, since, until = (given.get(name) or None for name in FILTER_NAMES)
    return Filters(
        engine,
        model,
        device,
        host,
        _time(since, f"{prefix}since"),
        _time(until, f"{prefix}until", end=True),
        tuple(_version(text, f"{prefix}version") for text in versions),
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
    try:
        time = datetime.datetime.fromisoformat(text)
        if end and len(text) <= len("2026-11-01"):
            time += datetime.timedelta(days=1)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{option} {text!r}: invalid date: expected a date such as 2026-11-01 or 2026-11-01T13:30"
        ) from None
