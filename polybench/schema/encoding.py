"""JSON of saved documents, in both directions."""

from __future__ import annotations

import functools
import json
import math
from typing import Any, TypeVar

import msgspec

from polybench.errors import BadInput, install_command

T = TypeVar("T", bound=msgspec.Struct)


def encode(document: msgspec.Struct) -> bytes:
    """Return a document as indented JSON in UTF-8; raises ValueError for a number that JSON cannot hold."""
    plain = msgspec.to_builtins(document)
    try:
        json.dumps(plain, allow_nan=False)  # msgspec writes nan and inf as null, which would read as "not measured"
        text = msgspec.json.encode(plain)
    except ValueError:  # also of a text that UTF-8 cannot hold
        text = msgspec.json.encode(_json_value(plain, "study"))
    return msgspec.json.format(text, indent=1) + b"\n"


def decode(text: bytes, kind: type[T], schema: str | None = None) -> T:
    """Read a document from JSON.

    Args:
        kind: its type, or a struct with some of its fields.
        schema: the expected kind and version; by default those of the type.

    Raises:
        msgspec.ValidationError: it is of another kind, or another version of polybench wrote it.
        msgspec.DecodeError: it is not JSON.
    """
    _check_schema(find_schema(text), schema or _schema_of(kind))
    return _decode(text, kind)


def find_schema(text: bytes) -> str:
    """Return the schema of a document; "" without one."""
    return _decode(text, _Header).schema


@functools.cache
def _schema_of(kind: type[msgspec.Struct]) -> str:
    return str(next(field.default for field in msgspec.structs.fields(kind) if field.name == "schema"))


def _check_schema(found: str, expected: str) -> None:
    if found == expected:
        return
    family, _, version = found.partition("/")
    problem = f"schema is {found!r}, this version reads {expected!r}"
    expected_family, _, expected_version = expected.partition("/")
    if family == expected_family and version.isdecimal() and int(version[:18]) > int(expected_version):
        problem += f"; a newer polybench wrote it: {install_command()}"
    raise msgspec.ValidationError(problem)


class _Header(msgspec.Struct):
    schema: str = ""


def _decode(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except BadInput as error:  # of a record that checks itself
        raise msgspec.ValidationError(str(error)) from None
    except (RecursionError, UnicodeDecodeError, ArithmeticError, LookupError) as error:  # also of a network
        raise msgspec.DecodeError(str(error)) from None


def _json_value(value: Any, location: str) -> Any:
    """Return the value in a form that JSON in UTF-8 can hold; raise ValueError with the place of a number."""
    if isinstance(value, str):  # the name of a program or a file may not be UTF-8
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{location} is {value}")
    if isinstance(value, dict):
        return {_json_value(key, location): _json_value(item, f"{location}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, f"{location}[{index}]") for index, item in enumerate(value)]
    return value
