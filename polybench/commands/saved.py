"""Saved documents by what a user calls them, and what belongs to a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from polybench.commands.presentation import Presentation
from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.layers import LayersDocument, layers_from_json
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.document.sweep import SweepDocument
from polybench.core.errors import BadInput

if TYPE_CHECKING:
    from polybench.report.saved_studies import Store

SomeDocument = StudyDocument | LayersDocument | SweepDocument

Told = TypeVar("Told", bound=SomeDocument | ExplanationDocument)


def document_of(name: str, store: Store) -> SomeDocument:
    """A saved study by its ID, prefix or `last`; or the document in the file of this name.

    Raises:
        BadInput: there is none, several match, or it cannot be read.
    """
    path = Path(name)
    if not (name.endswith(".json") and path.is_file()):
        return store.load(name)
    try:
        return _read(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {error}") from error


def told(document: Told, how: Presentation) -> Told:
    """What is printed of it: without host name, user and folders where that was asked for."""
    from polybench.report.anonymous import anonymous
    from polybench.report.saved_studies import results_folder

    return anonymous(document, results_folder(how.results)) if how.anonymous else document


class _Head(msgspec.Struct):
    schema: str


def _read(text: bytes) -> SomeDocument:
    schema = msgspec.json.decode(text, type=_Head).schema
    if schema.startswith("polybench.layers/"):
        return layers_from_json(text)
    if schema.startswith("polybench.sweep/"):
        return msgspec.json.decode(text, type=SweepDocument)
    return from_json(text)


def layers_with(study: StudyDocument, store: Store) -> LayersDocument:
    """The newest saved layers that belong to the study.

    Raises:
        BadInput: there are none, with the command that measures them.
    """
    found = find_layers(study, store)
    if found is None:
        from polybench.planning.follow_ups import command_line, for_layers, has_layers, measured_study

        cells = [result for result in study.results if result.ranked and has_layers(result)]
        wanted = for_layers(measured_study(study), cells) if cells else None
        remedy = f"; measure them: {command_line('layers', wanted)}" if wanted else ""
        raise BadInput(f"no saved layers belong to study {study.id}{remedy}")
    return found


def find_layers(study: StudyDocument, store: Store) -> LayersDocument | None:
    """The same, of as many of its cells as were measured together; None where there are none."""
    from polybench.planning.follow_ups import has_layers
    from polybench.report.belonging import layers_of

    cells = [result.cell for result in study.results if result.ranked and has_layers(result)]
    saved = store.layers() if cells else []
    for several in (cells, *([cell] for cell in cells)):
        if several and (found := layers_of(study, saved, several)):
            return found
    return None
