"""What driver and node program say to each other: one JSON object a line, however it travels."""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.document.result import Status
from polybench.core.spec import Study
from polybench.report.experience import Check


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has to have the same as the driver, or it measures something else."""

    version: str
    """polybench's."""
    sources: str
    """SHA-256 of all of polybench's own programs."""
    python: str
    """Its minor version, 3.12."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """The study of one machine group; what a node program is given first."""

    id: str
    created: str
    study: Study
    program: Program
    argv: list[str] = []
    background: Background = NO_BACKGROUND
    strict: bool = False
    check: Check = "new"
    anonymous: bool = False
    state: bytes | None = None
    """What an earlier node has kept of this study: it goes on from there."""
    examine: bool = False
    """Tell what `doctor` says instead, and measure nothing."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End as Ctrl-C ends a study: what is finished is sent, marked."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The node has what it needs, and begins."""

    hostname: str
    versions: dict[str, str | None] = {}
    """Of the packages that the study's engines need, by pip's names; None is not installed."""


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """As of measuring.progress.Progress."""

    text: str


class Remaining(msgspec.Struct, frozen=True, tag="remaining"):
    """As of Progress."""

    seconds: float


class CellLine(msgspec.Struct, frozen=True, array_like=True):
    """A measuring.progress.CellSoFar."""

    name: str
    identity: str
    status: Status
    rounds: int
    step_seconds: float | None


class Cells(msgspec.Struct, frozen=True, tag="cells"):
    """As of Progress."""

    cells: list[CellLine]


class Warned(msgspec.Struct, frozen=True, tag="warned"):
    """As of Progress."""

    text: str


class Saved(msgspec.Struct, frozen=True, tag="saved"):
    """After each finished part of the study: all that is known, and all that is needed to go on elsewhere."""

    document: bytes
    """A StudyDocument, as JSON."""
    state: bytes | None
    """A measuring.checkpoint.Checkpoint, as it is kept; None where nothing is left to do."""
    logs: dict[str, bytes] = {}
    """Of failed workers, by the file's name."""


class Examined(msgspec.Struct, frozen=True, tag="examined"):
    """What `doctor` says there."""

    report: dict[str, Any]
    """A measuring.doctor.Report."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The last document, or the report, was sent. Nothing follows."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing was measured, for a reason that its user can do something about. Nothing follows."""

    text: str
    exit_code: int
    """Of the error's class in core.errors."""


Message = Hello | Stage | Remaining | Cells | Warned | Saved | Examined | Finished | Refused
"""From the node program."""

message_decoder = msgspec.json.Decoder(Message)
request_decoder = msgspec.json.Decoder(Task | Stop)


def line_of(message: Message | Task | Stop) -> bytes:
    """With its newline."""
    return msgspec.json.encode(message) + b"\n"
