"""Filters as people write them: on the command line, and in the form of a page."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from polybench.core.errors import BadInput
from polybench.report.listed import Filters

NAMES = ("engine", "model", "device", "host", "since", "until")
"""Of which each is given once; versions may be several."""


def filters_of(given: Mapping[str, str | None], versions: Sequence[str], before: str = "--") -> Filters:
    """Which studies are wanted.

    Args:
        given: texts by name, of NAMES; None and what is not there is all.
        versions: `torch=2.13` each.
        before: what stands before a name where it is given, for messages.

    Raises:
        BadInput: something is no date or no version.
    """
    engine, model, device, host, since, until = (given.get(name) or None for name in NAMES)
    return Filters(
        engine,
        model,
        device,
        host,
        _time(since, f"{before}since"),
        _time(until, f"{before}until", end=True),
        tuple(_version(text, f"{before}version") for text in versions),
    )


def _version(text: str, where: str) -> tuple[str, str]:
    name, _, number = text.partition("=")
    if not name or not number:
        raise BadInput(f"{where} {text!r}: write name=number, for example {where} torch=2.13")
    return name, number


def _time(text: str | None, where: str, *, end: bool = False) -> float | None:
    """In seconds since 1970; of a date its beginning, or with `end` that of the next day."""
    if text is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(text)
        if end and len(text) <= len("2026-11-01"):
            time += datetime.timedelta(days=1)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f"{where} {text!r} is no date; write 2026-11-01 or 2026-11-01T13:30") from None
