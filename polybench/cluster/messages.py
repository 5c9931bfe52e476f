"""Messages between driver and node program: one JSON object per line, whatever the transport."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from polybench.engines import ENGINES
from polybench.errors import __version__, install_command
from polybench.log import AnyEvent, Header
from polybench.parity_check.check import source_files
from polybench.runner.progress import ConfigurationProgress
from polybench.schema.options import CheckScope, EngineName, PositiveInt, Study


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that a node must share with the driver to measure the same programs."""

    version: str
    source_sha256: str
    """Hash of all source files of polybench."""
    python: str
    """Minor version, such as 3.12."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """Study of one machine group; the first message to a node program."""

    header: Header
    """Header of the study; the node replaces the driver's host and polybench by its own."""
    study: Study
    fingerprint: Fingerprint
    strict: bool = False
    parity_check: CheckScope = "new"
    log: list[AnyEvent] = []
    """Log of an earlier node, from which this one resumes; empty if everything is measured."""
    diagnose: bool = False
    """Send the report of `doctor` instead of measuring."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Request to end as Ctrl-C ends a study: finished parts are sent and marked as interrupted."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The node fulfils the requirements and starts."""

    hostname: str
    versions: dict[str, str | None] = {}
    """Versions of the packages of the study's engines, by their names on the index; None is not installed."""


class StageChanged(msgspec.Struct, frozen=True, tag="stage_changed"):
    """Report for runner.progress.Progress."""

    text: str


class TimeLeft(msgspec.Struct, frozen=True, tag="time_left"):
    """See StageChanged."""

    seconds: float


class ProgressUpdate(msgspec.Struct, frozen=True, tag="progress_update"):
    """See StageChanged."""

    configurations: list[ConfigurationProgress]


class WarningRaised(msgspec.Struct, frozen=True, tag="warning_raised"):
    """See StageChanged."""

    text: str


class Lines(msgspec.Struct, frozen=True, tag="lines"):
    """Lines of the study's log; `first` is the number of the first one, from 1."""

    first: PositiveInt
    events: list[AnyEvent]

    def after(self, count: int) -> list[AnyEvent]:
        """Return those after the first `count` lines of the log; raise ValueError if lines before them are missing."""
        if self.first > count + 1:
            raise ValueError(f"line {count + 1} of its log did not arrive")
        return self.events[count + 1 - self.first :]


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The node program starts again on another machine, with a new log; the reason is a text."""

    reason: str


class Diagnosed(msgspec.Struct, frozen=True, tag="diagnosed"):
    """Report of `doctor`."""

    report: dict[str, Any]
    """A runner.doctor.Report."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """Last message after the end of the log, or after the report."""

    logs: dict[str, bytes] = {}
    """Logs of failed workers, by file name."""


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Last message if nothing was measured, for a reason that the user can fix."""

    text: str
    exit_code: int
    """Exit code of the error's class in errors."""


class NodeLost(msgspec.Struct, frozen=True, tag="node_lost"):
    """Last message, from the executor: the node program was killed, or its machine is gone."""

    reason: str
    can_retry: bool = True
    """True if another machine of the class may be available."""


LAST_MESSAGES = (Finished, Rejected, NodeLost)

Message = (
    Started | StageChanged | TimeLeft | ProgressUpdate | WarningRaised | Lines | Moved | Diagnosed
    | Finished | Rejected | NodeLost
)  # fmt: skip

message_decoder = msgspec.json.Decoder(Message)
request_decoder = msgspec.json.Decoder(Task | Stop)


def encode_line(message: Message | Task | Stop) -> bytes:
    """Encode the message with a newline."""
    return msgspec.json.encode(message) + b"\n"


def decode_lines(text: bytes) -> tuple[list[Message], bytes]:
    """Return the messages in complete lines, and the incomplete last line; skip lines without a message."""
    *lines, rest = text.split(b"\n")
    messages: list[Message] = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):  # its program was killed while writing it
            messages.append(message_decoder.decode(line))
    return messages, rest


def append_messages(file: Path, *messages: Message) -> None:
    """Write messages so that other nodes can read them, after the incomplete line that a killed job may have left.

    A network file system shows changes to a file only when it is opened, so it does not stay open.
    """
    with file.open("ab") as stream:
        stream.write(b"\n" + b"".join(map(encode_line, messages)))
        stream.flush()
        os.fsync(stream.fileno())


def read_messages(file: Path, offset: int = 0) -> tuple[list[Message], int]:
    """Return the messages in complete lines after an offset, and the next offset."""
    with contextlib.suppress(FileNotFoundError), file.open("rb") as stream:
        stream.seek(offset)
        messages, rest = decode_lines(stream.read())
        return messages, stream.tell() - len(rest)
    return [], offset


def last_host(file: Path) -> tuple[str | None, list[Lines]]:
    """Return the host that a job has started on last, None if it has not started, and the lines sent from there."""
    host, sent = None, list[Lines]()
    for message in read_messages(file)[0]:
        match message:
            case Started():
                host = message.hostname
            case Moved():
                sent = []
            case Lines():
                sent.append(message)
    return host, sent


def current_fingerprint() -> Fingerprint:
    """Return the fingerprint of this process."""
    digest = hashlib.sha256()
    for path in sorted(source_files(), key=lambda path: path.name):  # folders of an installed package differ
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    python = ".".join(map(str, sys.version_info[:2]))
    return Fingerprint(version=__version__, source_sha256=digest.hexdigest(), python=python)


def differences(driver: Fingerprint, node: Fingerprint) -> list[str]:
    """Describe the differences, each with a fix."""
    problems = []
    if driver.python != node.python:
        problems.append(f"it has Python {node.python}, but the driver has {driver.python}; install the same version")
    if driver.version != node.version:
        problems.append(
            f"it has polybench {node.version}, but the driver has {driver.version};"
            f" on that machine: {install_command(version=driver.version)}"
        )
    elif driver.source_sha256 != node.source_sha256:
        problems.append("its polybench has the same version, but different source files; install the driver's")
    return problems


def package_versions(study: Study) -> dict[str, str | None]:
    """Return the versions of the engines' packages by name on the index, without importing them."""
    versions: dict[str, str | None] = {}
    for text in study.engines:
        for name in ENGINES.find(EngineName.parse(text).engine).packages:
            versions[name] = None  # not installed
            with contextlib.suppress(PackageNotFoundError):
                versions[name] = version(name)
    return versions
