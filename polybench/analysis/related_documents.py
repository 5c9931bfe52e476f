"""Collects what is shown with a saved study: programs, layer times and an explanation."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.related_studies import find_layers
from polybench.errors import BadInput
from polybench.networks import MODELS
from polybench.planning.suggested_commands import has_layers
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Configuration
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.scripts import STEPS, make_script
from polybench.storage.filters import Filters
from polybench.storage.store import Store

MAX_STUDIES = 300
"""Number of the newest studies with the same network and machine that are read; each may take megabytes."""


class RelatedDocuments(NamedTuple):
    """Documents related to one study.

    Attributes:
        programs: configuration, and the program that it ran or else its plain program, if there is one.
        layers: None if no saved layers document is related.
        explanation: None if there is nothing to compare.
    """

    programs: list[tuple[str, str]]
    layers: LayersDocument | None
    explanation: ExplanationDocument | None


def related_documents(study: StudyDocument, saved: SavedDocuments) -> RelatedDocuments:
    """Return what the saved documents of `load_saved_documents` and the study itself say about it."""
    programs = [(result.configuration, text) for result in study.results if (text := _program(study, result))]
    return RelatedDocuments(programs, newest_layers(study, saved.layers), _explanation(study, saved))


def load_saved_documents(study: StudyDocument, store: Store) -> SavedDocuments:
    """Load the documents that may be related: those of the same machine and network, and all summaries."""
    same = Filters(model=glob.escape(study.settings.model), host=glob.escape(study.host.hostname))
    studies = list(itertools.islice(store.studies(same), MAX_STUDIES))
    return SavedDocuments(list(store.others("layers", same)), studies, store.summaries())


def newest_layers(study: StudyDocument, saved: Sequence[LayersDocument]) -> LayersDocument | None:
    """Return the newest related layers document with all configurations, else with any of them."""
    configurations = [result.configuration for result in study.results if result.is_ranked and has_layers(result)]
    for names in (configurations, *([configuration] for configuration in configurations)):
        if names and (found := find_layers(study, saved, names)):
            return found
    return None


def _explanation(study: StudyDocument, saved: SavedDocuments) -> ExplanationDocument | None:
    try:
        return explain(study, saved)
    except BadInput:  # too few or too many comparable configurations
        return None


def _program(study: StudyDocument, result: Result) -> str | None:
    """Return the program that a configuration ran, or a plain program with the steps of a round."""
    if result.program is not None:
        return result.program.text
    if study.settings.input == "pipeline" or not result.is_measured:
        return None
    variants = tuple(result.variant.split("+")) if result.variant else ()
    steps = max((len(one) for process in result.nested_step_times for one in process), default=STEPS)
    configuration, model = Configuration(result.engine, variants, result.device), MODELS.get(result.workload.model)
    return make_script(configuration, result.workload, steps, model, study.settings.seed)
