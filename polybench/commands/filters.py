"""The options that choose among saved studies."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from polybench.core.errors import BadInput
from polybench.report.listed import Filters


def make_filters(
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="torch: any variant; torch+compile: this one. Names may have * and ?."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Of this network: lenet, catdog-*.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="With a cell on it: cpu, cuda*.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Measured on this machine, by its name.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="From this date on: 2026-11-01 (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to and with this date.")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", help="NAME=NUMBER: torch=2.13 is 2.13.0 and 2.13.1, too; may be repeated."),
    ] = None,
) -> Filters:
    """What was given on the command line; raises BadInput for what is no date or no version."""
    versions = [_version(text) for text in version or ()]
    since_time, until_time = _time(since, "--since"), _time(until, "--until", end=True)
    return Filters(engine, model, device, host, since_time, until_time, tuple(versions))


def _version(text: str) -> tuple[str, str]:
    name, _, number = text.partition("=")
    if not name or not number:
        raise BadInput(f"--version {text!r}: write name=number, for example --version torch=2.13")
    return name, number


def _time(text: str | None, option: str, *, end: bool = False) -> float | None:
    """In seconds since 1970; of a date its beginning, or with `end` that of the next day."""
    if text is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(text)
        if end and len(text) <= len("2026-11-01"):
            time += datetime.timedelta(days=1)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f"{option} {text!r} is no date; write 2026-11-01 or 2026-11-01T13:30") from None
