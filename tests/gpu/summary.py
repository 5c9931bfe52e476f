"""What was shown, what failed and what could not be tried, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Verdict = Literal["shown", "failed", "could not be tried"]


class Line(NamedTuple):
    """One thing that a machine with a GPU was to show."""

    what: str
    verdict: Verdict
    detail: str


def markdown(gpus: Sequence[str], facts: Mapping[str, str], chapters: Mapping[str, Sequence[Line]]) -> str:
    """The summary; `chapters` are the steps in their order, `facts` what was found of the machine."""
    lines = [line for chapter in chapters.values() for line in chapter]
    said = ["# What a GPU has shown", "", f"{', '.join(gpus) or 'No GPU: a rehearsal'}.", "", counted(lines)]
    said += ["", *(f"- {name}: {_cell(text)}" for name, text in facts.items())]
    for title, chapter in chapters.items():
        said += ["", f"## {title}", "", "| what | verdict | |", "|---|---|---|"]
        said += [f"| {_cell(line.what)} | {line.verdict} | {_cell(line.detail)} |" for line in chapter]
    return "\n".join(said) + "\n"


def counted(lines: Iterable[Line]) -> str:
    """How many of each verdict, as a sentence."""
    verdicts = [line.verdict for line in lines]
    shown, failed, untried = (verdicts.count(one) for one in ("shown", "failed", "could not be tried"))
    return f"{shown} shown, {failed} failed, {untried} could not be tried."


def _cell(text: str) -> str:
    """In one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")
