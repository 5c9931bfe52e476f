"""The saved document of a study, and JSON both ways.

Schema history:
    polybench.study/1  first version
"""

from __future__ import annotations

import datetime
import math
from typing import Any, TypeVar

import msgspec

from polybench.core.document.circumstances import Host, Published, Resumed, Settings, Took, Tool
from polybench.core.document.explanation import Sentence
from polybench.core.document.result import Result

SCHEMA = "polybench.study/1"

T = TypeVar("T")


class StudyDocument(msgspec.Struct, kw_only=True):
    """The saved document. `study` is the whole study as TOML: running it repeats the measurement.

    `finished` is false until its study has come to its end, be it by Ctrl-C; a document of an earlier version
    does not say. `title` and `published` come from a study file; none of the published numbers was measured
    here.
    """

    schema: str = SCHEMA
    id: str
    created: str
    finished: bool | None = None
    took: Took | None = None
    """Null where that was not one run: the study was stopped, and resumed."""
    polybench: Tool
    argv: list[str]
    resumed: list[Resumed] = []
    title: str | None = None
    machine: str | None = None
    """What the study file calls the machine, where it names several."""
    study: str
    settings: Settings
    host: Host
    warnings: list[str] = []
    results: list[Result] = []
    published: list[Published] = []
    explanation: list[Sentence] = []
    """What `compare --explain` said of it."""

    def result(self, cell: str) -> Result:
        """The result of the cell of this name, which must be there."""
        return next(result for result in self.results if result.cell == cell)


def to_json(study: StudyDocument) -> bytes:
    """The document as indented JSON in UTF-8; raises ValueError on a number that JSON does not have."""
    return json_of(study)


def json_of(document: msgspec.Struct) -> bytes:
    """The same of a document of any kind."""
    plain = _text_of_json(msgspec.to_builtins(document), "study")
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def from_json(text: bytes) -> StudyDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the place."""
    check_schema(text)
    study = decoded(text, StudyDocument)
    try:
        datetime.datetime.fromisoformat(study.created)
    except ValueError as error:
        raise msgspec.ValidationError(f"{error} - at `$.created`") from None
    return study


def decoded(text: bytes, kind: type[T]) -> T:
    """A record from JSON; raises msgspec.ValidationError or msgspec.DecodeError, whatever the text is."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (RecursionError, UnicodeDecodeError, ArithmeticError, LookupError) as error:  # also of a network
        raise msgspec.DecodeError(str(error)) from None


def check_schema(text: bytes) -> None:
    """Find out whether this version reads the document, before one of another kind lacks a field.

    Raises:
        msgspec.ValidationError: it is of another kind, or of a newer version of polybench.
        msgspec.DecodeError: it is no JSON.
    """
    schema = decoded(text, _Head).schema
    if schema == SCHEMA:
        return
    this = f"schema is {schema!r}, this version reads {SCHEMA!r}"
    kind, _, version = SCHEMA.partition("/")
    theirs, _, number = schema.partition("/")
    if theirs == kind and number.isdecimal() and int(number[:18]) > int(version):
        this += "; a newer polybench wrote it: pip install --upgrade polybench"
    raise msgspec.ValidationError(this)


class _Head(msgspec.Struct):
    schema: str = SCHEMA


def _text_of_json(value: Any, place: str) -> Any:
    """The same, of what JSON in UTF-8 can hold.

    A file name may have bytes that are no text, which Python has as surrogates: they become `\\udcff`.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    # msgspec writes nan and inf as null, which would read as "not measured".
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}")
    if isinstance(value, dict):
        return {
            _text_of_json(key, place): _text_of_json(part, f"{place}.{key}") for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_text_of_json(part, f"{place}[{index}]") for index, part in enumerate(value)]
    return value
