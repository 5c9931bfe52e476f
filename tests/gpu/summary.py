"""The summary: what passed, what failed and what could not be tried, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Verdict = Literal["passed", "failed", "could not be tried"]


class Line(NamedTuple):
    """A result that a GPU machine should produce."""

    what: str
    verdict: Verdict
    detail: str


def markdown(gpus: Sequence[str], facts: Mapping[str, str], chapters: Mapping[str, Sequence[Line]]) -> str:
    """Format the summary; `chapters` are the steps in order, `facts` describe the machine."""
    lines = [line for chapter in chapters.values() for line in chapter]
    output = ["# GPU test results", "", f"{', '.join(gpus) or 'No GPU: a rehearsal'}.", "", counted(lines)]
    output += ["", *(f"- {name}: {_cell(text)}" for name, text in facts.items())]
    for title, chapter in chapters.items():
        output += ["", f"## {title}", "", "| check | verdict | detail |", "|---|---|---|"]
        output += [f"| {_cell(line.what)} | {line.verdict} | {_cell(line.detail)} |" for line in chapter]
    return "\n".join(output) + "\n"


def counted(lines: Iterable[Line]) -> str:
    """Count the verdicts in a sentence."""
    verdicts = [line.verdict for line in lines]
    passed, failed, untried = (verdicts.count(one) for one in ("passed", "failed", "could not be tried"))
    return f"{passed} passed, {failed} failed, {untried} could not be tried."


def _cell(text: str) -> str:
    """Format a text as one table cell."""
    return " ".join(text.split()).replace("|", "\\|")
