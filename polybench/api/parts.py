"""What a report is made of, by what a user calls it."""

from __future__ import annotations

from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import SweepDocument
from polybench.core.errors import BadInput
from polybench.page import Chapter, Part
from polybench.report.belongings import belongings
from polybench.report.saved_documents import document_of
from polybench.report.saved_studies import Store


def part_of(name: str, store: Store) -> Part:
    """A study with all that is saved of it, or a sweep.

    Raises:
        BadInput: there is none, it cannot be read, or it is of another kind.
    """
    document = document_of(name, store)
    if isinstance(document, SweepDocument):
        return document
    if not isinstance(document, StudyDocument):
        raise BadInput(
            f"{name} is neither a study nor a sweep; the report of a study has the layers that belong to it,"
            " and their roofs"
        )
    return chapter_of(document, store)


def chapter_of(study: StudyDocument, store: Store) -> Chapter:
    """With its programs, layers and explanation, as far as they are there."""
    return Chapter(study, *belongings(study, store))
