"""Sections of a report, by the name that a user gives."""

from __future__ import annotations

from polybench.analysis.related_documents import related_documents
from polybench.errors import BadInput
from polybench.html_report import Section, StudySection
from polybench.schema.measurements import SweepDocument
from polybench.schema.study import StudyDocument
from polybench.storage.document_loader import load_document
from polybench.storage.store import Store


def load_section(name: str, store: Store) -> Section:
    """Load a study with all related saved documents, or a sweep.

    Raises:
        BadInput: the document does not exist, cannot be read, or is of another kind.
    """
    document = load_document(name, store)
    if isinstance(document, SweepDocument):
        return document
    if not isinstance(document, StudyDocument):
        raise BadInput(f"{name} is neither a study nor a sweep; the report of a study includes its layers and peaks")
    return study_section(document, store)


def study_section(study: StudyDocument, store: Store) -> StudySection:
    """Return the section of a study, with its scripts, layers and explanation as far as available."""
    return StudySection(study, *related_documents(study, store))
