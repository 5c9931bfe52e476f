"""What commands do with saved documents: leave out what is told of a machine, and find a study's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from polybench.commands.presentation import Presentation
from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.history import HistoryDocument
from polybench.core.errors import BadInput

if TYPE_CHECKING:
    from polybench.core.document.layers import LayersDocument
    from polybench.core.document.study import StudyDocument
    from polybench.report.saved_documents import SomeDocument
    from polybench.report.saved_studies import Store

Told = TypeVar("Told", bound="SomeDocument | ExplanationDocument")


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
