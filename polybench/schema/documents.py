"""The kinds of documents. ADD A DOCUMENT KIND: a record with its `schema`, and its row here."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from polybench.schema.analyses import BisectDocument, DiffDocument, ExplanationDocument, HistoryDocument, MergeDocument
from polybench.schema.encoding import decode, find_schema
from polybench.schema.measurements import (
    AllocationsDocument,
    LayersDocument,
    OverheadDocument,
    PeakDocument,
    SweepDocument,
)
from polybench.schema.metadata import Document
from polybench.schema.options import LogKind, SweepCommand
from polybench.schema.study import SCHEMA, StudyDocument

AnyDocument = Document | DiffDocument | HistoryDocument | MergeDocument | ExplanationDocument | BisectDocument


class DocumentKind(NamedTuple):
    """A kind of document, with the schema `polybench.KIND/2`.

    Attributes:
        type: its record.
        description: the kind with its article, for messages.
        id_prefix: the start of the IDs of their logs; the rest begins with the time of the start. Only what is measured
            has a log, and studies have no prefix.
    """

    type: type[AnyDocument]
    description: str
    id_prefix: str = ""


DOCUMENT_KINDS = {
    "study": DocumentKind(StudyDocument, "a study"),
    "layers": DocumentKind(LayersDocument, "a layers document", id_prefix="layers-"),
    "sweep": DocumentKind(SweepDocument, "a sweep", id_prefix="sweep-"),
    "overhead": DocumentKind(OverheadDocument, "an overhead", id_prefix="overhead-"),
    "peak": DocumentKind(PeakDocument, "a peak", id_prefix="peak-"),
    "allocations": DocumentKind(AllocationsDocument, "an allocations document", id_prefix="allocations-"),
    "diff": DocumentKind(DiffDocument, "a diff"),
    "history": DocumentKind(HistoryDocument, "a history"),
    "merge": DocumentKind(MergeDocument, "a merge"),
    "explanation": DocumentKind(ExplanationDocument, "an explanation"),
    "bisect": DocumentKind(BisectDocument, "a bisection"),
}


_PREFIXES = tuple(row.id_prefix for row in DOCUMENT_KINDS.values() if row.id_prefix)
_SWEEPS = tuple(DOCUMENT_KINDS[command].id_prefix for command in get_args(SweepCommand))

_POINT_ID = re.compile(r"(.+)\.([0-9]{1,9})")


def kind_of_id(id: str) -> LogKind:
    """Return the kind of a log by its ID; a point of a sweep is a study."""
    is_study = not id.startswith(_PREFIXES) or split_point_id(id) is not None
    return "study" if is_study else id.partition("-")[0]  # type: ignore[return-value]  # checked by the prefix


def start_of_id(id: str) -> str:
    """Return the part of an ID that begins with the time of the start."""
    return id.partition("-")[2] if id.startswith(_PREFIXES) else id


def point_id(sweep: str, number: int) -> str:
    """Return the ID of the study of a sweep's point."""
    return f"{sweep}.{number}"


def split_point_id(id: str) -> tuple[str, int] | None:
    """Return the sweep and the number of a point; None for another ID."""
    found = _POINT_ID.fullmatch(id)
    return (found[1], int(found[2])) if found is not None and id.startswith(_SWEEPS) else None


def kind_of(schema: str) -> str:
    """Return the kind of a schema: `sweep` for `polybench.sweep/2`."""
    return schema.removeprefix("polybench.").partition("/")[0]


def read_document(text: bytes) -> AnyDocument:
    """Read a document of any kind; raises msgspec.ValidationError or msgspec.DecodeError."""
    kind = DOCUMENT_KINDS.get(kind_of(find_schema(text)), DOCUMENT_KINDS["study"])
    return decode(text, kind.type)


def newest_name(kind: str) -> str:
    """Return the name of the newest document of a kind in commands: `last`, `sweep-last`."""
    return "last" if kind == "study" else f"{kind}-last"


JSON_SCHEMA = Path(__file__).with_name("study.schema.json")


def study_schema() -> str:
    """Return the JSON Schema of a study as indented JSON."""
    return json_schema(StudyDocument, SCHEMA)


def json_schema(type_: Any, title: str) -> str:
    """Return the JSON Schema of a type as indented JSON."""
    (reference,), definitions = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    header = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    full_schema: dict[str, Any] = {**header, **reference, "$defs": dict(sorted(definitions.items()))}
    return json.dumps(full_schema, indent=1) + "\n"


if __name__ == "__main__":
    JSON_SCHEMA.write_text(study_schema())
