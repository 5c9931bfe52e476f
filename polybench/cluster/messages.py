"""Messages between driver and node program: one JSON object per line, whatever the transport."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from polybench.engines.plugins import find_engine
from polybench.errors import __version__, install_command
from polybench.parity_check.check_cache import source_files
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import EngineName, Study
from polybench.schema.result import Status
from polybench.storage.past_durations import CheckScope


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that a node must share with the driver to measure the same programs."""

    version: str
    """Version of polybench."""
    source_sha256: str
    """SHA-256 of all source files of polybench."""
    python: str
    """Minor version of Python, such as 3.12."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """Study of one machine group; the first message to a node program."""

    id: str
    created: str
    study: Study
    fingerprint: Fingerprint
    argv: list[str] = []
    study_file: StudyFileMetadata = NO_METADATA
    strict: bool = False
    parity_check: CheckScope = "new"
    anonymous: bool = False
    checkpoint: bytes | None = None
    """Checkpoint of an earlier node, from which this one resumes."""
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
    """See runner.progress.Progress."""

    text: str


class TimeLeft(msgspec.Struct, frozen=True, tag="time_left"):
    """See Progress."""

    seconds: float


class ProgressLine(msgspec.Struct, frozen=True, array_like=True):
    """A runner.progress.ConfigurationProgress."""

    name: str
    parity: str
    status: Status
    rounds: int
    median_step_seconds: float | None


class ProgressUpdate(msgspec.Struct, frozen=True, tag="progress_update"):
    """See Progress."""

    configurations: list[ProgressLine]


class WarningRaised(msgspec.Struct, frozen=True, tag="warning_raised"):
    """See Progress."""

    text: str


class Saved(msgspec.Struct, frozen=True, tag="saved"):
    """Current result and checkpoint, sent after each finished phase of the study."""

    document: bytes
    """A StudyDocument as JSON."""
    checkpoint: bytes | None
    """A runner.study_checkpoint file; None if nothing remains to be done."""
    logs: dict[str, bytes] = {}
    """Logs of failed workers, by file name."""


class Diagnosed(msgspec.Struct, frozen=True, tag="diagnosed"):
    """Report of `doctor`."""

    report: dict[str, Any]
    """A runner.doctor.Report."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """Last message after the last document or report."""


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Last message if nothing was measured, for a reason that the user can fix."""

    text: str
    exit_code: int
    """Exit code of the error's class in errors."""


Message = Started | StageChanged | TimeLeft | ProgressUpdate | WarningRaised | Saved | Diagnosed | Finished | Rejected
"""Messages of the node program."""

message_decoder = msgspec.json.Decoder(Message)
request_decoder = msgspec.json.Decoder(Task | Stop)


def encode_line(message: Message | Task | Stop) -> bytes:
    """Encode the message with a newline."""
    return msgspec.json.encode(message) + b"\n"


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
    """Return the versions of the engines' packages, by name on the index; None is not installed. Imports
    nothing.
    """
    names = [name for text in study.engines for name in find_engine(EngineName.parse(text).engine).packages]
    return {name: _version(name) for name in dict.fromkeys(names)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
