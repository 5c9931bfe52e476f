"""Saved documents by what a user calls them, and what belongs to a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from polybench.commands.presentation import Presentation
from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.history import HistoryDocument
from polybench.core.document.layers import LayersDocument, layers_from_json
from polybench.core.document.limit import LimitDocument
from polybench.core.document.overhead import OVERHEAD_ID, OverheadDocument, overhead_from_json
from polybench.core.document.study import StudyDocument, decoded, from_json
from polybench.core.document.sweep import SWEEP_ID, SweepDocument, sweep_from_json
from polybench.core.errors import BadInput

if TYPE_CHECKING:
    from polybench.report.saved_studies import Store

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

Told = TypeVar("Told", bound=SomeDocument | ExplanationDocument)


def document_of(name: str, store: Store) -> SomeDocument:
    """A saved study, sweep or overhead by its ID, prefix or `last`; or the document in the file of this name.

    Raises:
        BadInput: there is none, several match, or it cannot be read.
    """
    from polybench.report.saved_studies import is_path

    if not is_path(name):
        if name.startswith(SWEEP_ID):
            return store.load_sweep(name)
        return store.load_overhead(name) if name.startswith(OVERHEAD_ID) else store.load(name)
    try:
        return _read(Path(name).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {error}") from error


def told(document: Told, how: Presentation) -> Told:
    """What is printed of it: without host name, user and folders where that was asked for."""
    from polybench.report.anonymous import UNKNOWN_HOST, anonymous
    from polybench.report.saved_studies import results_folder

    if not how.anonymous:
        return document
    if isinstance(document, HistoryDocument):
        nameless = [msgspec.structs.replace(one, hostname=UNKNOWN_HOST) for one in document.series]
        return msgspec.structs.replace(document, series=nameless)
    return anonymous(document, results_folder(how.results))


class _Head(msgspec.Struct):
    schema: str


def _read(text: bytes) -> SomeDocument:
    return _READERS.get(kind_of(msgspec.json.decode(text, type=_Head)), from_json)(text)


def kind_of(document: SomeDocument | _Head) -> str:
    """Of a schema, `polybench.sweep/1`: sweep."""
    return document.schema.removeprefix("polybench.").partition("/")[0]


def called(kind: str) -> str:
    """A kind of document in a sentence: a sweep, an overhead."""
    return {"overhead": "an overhead", "layers": "a document of layers"}.get(kind, f"a {kind}")


def layers_with(study: StudyDocument, store: Store) -> LayersDocument:
    """The newest saved layers that belong to the study.

    Raises:
        BadInput: there are none, with the command that measures them.
    """
    from polybench.report.belongings import layers_beside

    found = layers_beside(study, store.layers())
    if found is None:
        from polybench.planning.follow_ups import command_line, for_layers, has_layers, measured_study

        cells = [result for result in study.results if result.ranked and has_layers(result)]
        wanted = for_layers(measured_study(study), cells) if cells else None
        remedy = f"; measure them: {command_line('layers', wanted)}" if wanted else ""
        raise BadInput(f"no saved layers belong to study {study.id}{remedy}")
    return found
