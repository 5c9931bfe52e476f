"""Helpers for commands that print saved documents: anonymization, and the layers of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from polybench.cli.output_options import OutputOptions
from polybench.errors import BadInput
from polybench.schema.analyses import ExplanationDocument, HistoryDocument

if TYPE_CHECKING:
    from polybench.schema.measurements import LayersDocument
    from polybench.schema.study import StudyDocument
    from polybench.storage.document_loader import AnyDocument
    from polybench.storage.store import Store

Document = TypeVar("Document", bound="AnyDocument | ExplanationDocument")

DOCUMENT_HELP = "Document: an ID, a unique prefix, `last`, `sweep-last` or `overhead-last`, or the path of a JSON file."
"""Help of the argument of commands that load any document."""


def anonymize_if_requested(document: Document, options: OutputOptions) -> Document:
    """Remove host name, user and folders from a document if --anonymous is given."""
    from polybench.storage.anonymize import UNKNOWN_HOST, anonymize
    from polybench.storage.store import results_folder

    if not options.anonymous:
        return document
    if isinstance(document, HistoryDocument):
        series = [msgspec.structs.replace(one, hostname=UNKNOWN_HOST) for one in document.series]
        return msgspec.structs.replace(document, series=series)
    return anonymize(document, results_folder(options.results))


def find_layers(study: StudyDocument, store: Store) -> LayersDocument:
    """Return the newest saved layers of a study.

    Raises:
        BadInput: no layers are saved; the message has the command that measures them.
    """
    from polybench.analysis.related_documents import newest_layers

    found = newest_layers(study, store.layers())
    if found is None:
        from polybench.planning.suggested_commands import command_line, for_layers, has_layers, measured_study

        results = [result for result in study.results if result.is_ranked and has_layers(result)]
        layers_study = for_layers(measured_study(study), results) if results else None
        hint = f"; measure them: {command_line('layers', layers_study)}" if layers_study else ""
        raise BadInput(f"no saved layers belong to study {study.id}{hint}")
    return found
