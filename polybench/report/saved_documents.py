"""A saved document of any kind, by what a user calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from polybench.core.document.history import HistoryDocument
from polybench.core.document.layers import LayersDocument, layers_from_json
from polybench.core.document.limit import LimitDocument
from polybench.core.document.overhead import OVERHEAD_ID, OverheadDocument, overhead_from_json
from polybench.core.document.study import StudyDocument, decoded, from_json
from polybench.core.document.sweep import SWEEP_ID, SweepDocument, sweep_from_json
from polybench.core.errors import BadInput
from polybench.report.saved_studies import Store, is_path

SomeDocument = (
    StudyDocument | LayersDocument | SweepDocument | OverheadDocument | LimitDocument | HistoryDocument
)

_READERS: dict[str, Callable[[bytes], SomeDocument]] = {
    "layers": layers_from_json,
    "sweep": sweep_from_json,
    "overhead": overhead_from_json,
    "limit": lambda text: decoded(text, LimitDocument),
    "history": lambda text: decoded(text, HistoryDocument),
}
"""By what stands in `polybench.KIND/1`; all else is read, or refused, as a study."""


def document_of(name: str, store: Store) -> SomeDocument:
    """A saved study, sweep or overhead by its ID, prefix or `last`; or the document in the file of this name.

    Raises:
        BadInput: there is none, several match, or it cannot be read.
    """
    if not is_path(name):
        if name.startswith(SWEEP_ID):
            return store.load_sweep(name)
        return store.load_overhead(name) if name.startswith(OVERHEAD_ID) else store.load(name)
    try:
        return _read(Path(name).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {error}") from error


def kind_of(document: SomeDocument) -> str:
    """Of a schema, `polybench.sweep/1`: sweep."""
    return _kind(document.schema)


def called(kind: str) -> str:
    """A kind of document in a sentence: a sweep, an overhead."""
    return {"overhead": "an overhead", "layers": "a document of layers"}.get(kind, f"a {kind}")


class _Head(msgspec.Struct):
    schema: str


def _read(text: bytes) -> SomeDocument:
    return _READERS.get(_kind(msgspec.json.decode(text, type=_Head).schema), from_json)(text)


def _kind(schema: str) -> str:
    return schema.removeprefix("polybench.").partition("/")[0]
