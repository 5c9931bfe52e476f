"""Documents without the fields that may name a host, a user or a folder."""

from __future__ import annotations

import tomllib
from typing import Any, TypeVar

import msgspec
import tomli_w

from polybench.errors import BadInput
from polybench.schema.analyses import MergeDocument
from polybench.schema.documents import AnyDocument
from polybench.schema.metadata import UNKNOWN_HOST, Host
from polybench.schema.options import is_program

OMITTED = "<omitted>"
"""Stands for a text that was left out."""

OMITTED_WARNINGS = "warnings were left out, because they may contain names and paths"

DATASETS = ("auto", "cifar10", "imdb", "mnist", "synthetic")
"""Names of data, which remain; anything else is a path. Those of `polybench.data`, which takes long to import."""

Document = TypeVar("Document", bound=AnyDocument)


def is_anonymized(host: Host) -> bool:
    """Return True if the host is that of an anonymized document."""
    return host.hostname == UNKNOWN_HOST


def anonymize(document: Document) -> Document:
    """Return the document without host name, command line, paths, warnings, and texts of engines that failed.

    Raises:
        BadInput: it is a merge, which would be unreadable without the names of its machines.
    """
    if isinstance(document, MergeDocument):
        raise BadInput("a merge has the names of its machines: merge anonymous studies instead")
    plain = without_names(msgspec.to_builtins(document))
    if "argv" in plain and "study" in plain:  # in a derived document, it is an ID
        plain["study"] = anonymize_study(plain["study"])
    return msgspec.convert(plain, type(document))


def anonymize_study(study: str) -> str:
    """Return a study in TOML without the paths of its data, environments and programs."""
    try:
        fields = tomllib.loads(study)
    except tomllib.TOMLDecodeError:  # of another program
        return ""
    if fields.get("data") not in (None, *DATASETS):
        fields["data"] = OMITTED
    if isinstance(fields.get("env"), dict):
        fields["env"] = dict.fromkeys(fields["env"], OMITTED)
    if isinstance(fields.get("engines"), list):
        fields["engines"] = [str(engine).rpartition("/")[2] for engine in fields["engines"]]
    return tomli_w.dumps(fields)


def without_names(value: Any) -> Any:
    """Return the fields of a record without those that may name a host, a user or a folder."""
    if isinstance(value, list | tuple):
        return [without_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _omit(name, item) for name, item in value.items()}
    if value.get("status") in ("failed", "unavailable"):  # the texts of its engine
        kept |= dict.fromkeys({"reason", "hint"} & kept.keys())
        kept["reason"] = OMITTED
    if isinstance(engine := value.get("engine"), str) and is_program(engine):
        kept["program"] = None
    return kept


def _omit(name: str, value: Any) -> Any:  # noqa: PLR0911 - one return per field
    match name, value:
        case "hostname", str():
            return UNKNOWN_HOST
        case "argv", _:
            return []
        case "log_path", str():
            return value.rpartition("/")[2]
        case "warnings", list():
            return [OMITTED_WARNINGS] if value else []
        case "versions", dict():
            return without_paths(value)
        case "sites", list():
            return [site | {"location": site["location"].rpartition("/")[2]} for site in value]
    return without_names(value)


def without_paths(versions: dict[str, Any]) -> dict[str, Any]:
    """Return the versions and variables that contain no slash."""
    parts = {name: without_paths(value) if isinstance(value, dict) else value for name, value in versions.items()}
    return {name: value for name, value in parts.items() if not (isinstance(value, str) and "/" in value)}
