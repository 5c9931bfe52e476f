"""Loads a saved document of any kind by its ID or path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from polybench.errors import BadInput
from polybench.schema.analyses import HistoryDocument
from polybench.schema.encoding import decode
from polybench.schema.measurements import (
    OVERHEAD_ID,
    SWEEP_ID,
    LayersDocument,
    OverheadDocument,
    PeakDocument,
    SweepDocument,
    layers_from_json,
    overhead_from_json,
    sweep_from_json,
)
from polybench.schema.study import StudyDocument, from_json
from polybench.storage.store import Store, is_document_path

AnyDocument = StudyDocument | LayersDocument | SweepDocument | OverheadDocument | PeakDocument | HistoryDocument

_READERS: dict[str, Callable[[bytes], AnyDocument]] = {
    "layers": layers_from_json,
    "sweep": sweep_from_json,
    "overhead": overhead_from_json,
    "peak": lambda text: decode(text, PeakDocument),
    "history": lambda text: decode(text, HistoryDocument),
}
"""Readers by the KIND of the schema `polybench.KIND/2`; all other documents are read as studies."""


def load_document(name: str, store: Store) -> AnyDocument:
    """Load a study, sweep or overhead by its ID, prefix or `last`, or any document by its path.

    Raises:
        BadInput: no document or several documents match, or the document cannot be read.
    """
    if not is_document_path(name):
        if name.startswith(SWEEP_ID):
            return store.load_sweep(name)
        return store.load_overhead(name) if name.startswith(OVERHEAD_ID) else store.load(name)
    try:
        return _read(Path(name).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {error}") from error


def document_kind(document: AnyDocument) -> str:
    """Return the kind of a document: `sweep` for the schema `polybench.sweep/2`."""
    return _kind(document.schema)


def describe_kind(kind: str) -> str:
    """Return a kind with its article: a sweep, an overhead."""
    return {"overhead": "an overhead", "layers": "a layers document"}.get(kind, f"a {kind}")


class _Header(msgspec.Struct):
    schema: str


def _read(text: bytes) -> AnyDocument:
    return _READERS.get(_kind(msgspec.json.decode(text, type=_Header).schema), from_json)(text)


def _kind(schema: str) -> str:
    return schema.removeprefix("polybench.").partition("/")[0]
