"""Collects what is shown with a saved study: programs, layer times and an explanation."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import NamedTuple

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.related_studies import find_layers
from polybench.errors import BadInput
from polybench.networks import MODELS
from polybench.planning.suggested_commands import has_layers
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Configuration, is_program
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.scripts import STEPS, make_script
from polybench.storage.filters import Filters
from polybench.storage.store import Store

MAX_STUDIES = 300
"""Number of the newest studies with the same network and machine that are read; each may take megabytes."""


_SIMILAR = 0.8
"""Smallest share of equal characters of a program and an edit of it."""


class RelatedDocuments(NamedTuple):
    """Documents related to one study.

    Attributes:
        programs: configuration, and the program that it ran or else its plain program, if there is one; then what a
            user's program changes in another one.
        layers: None if no saved layers document is related.
        explanation: None if there is nothing to compare.
    """

    programs: list[tuple[str, str]]
    layers: LayersDocument | None
    explanation: ExplanationDocument | None


def related_documents(study: StudyDocument, saved: SavedDocuments) -> RelatedDocuments:
    """Return what the saved documents of `load_saved_documents` and the study itself say about it."""
    programs = [(result.configuration, text) for result in study.results if (text := _program(study, result))]
    own = [result.configuration for result in study.results if is_program(result.engine)]
    return RelatedDocuments(
        [*programs, *_differences(programs, own)], newest_layers(study, saved.layers), _explanation(study, saved)
    )


def _differences(programs: Sequence[tuple[str, str]], own: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield, for each of the user's `own` configurations, what it changes in the most similar program before it."""
    texts: dict[str, str] = {}
    for name, text in programs:
        if name in own and texts:
            similar = {other: SequenceMatcher(None, one, text, autojunk=False) for other, one in texts.items()}
            nearest = max(similar, key=lambda other: similar[other].quick_ratio())
            if text != texts[nearest] and similar[nearest].quick_ratio() > _SIMILAR:
                lines = texts[nearest].splitlines(keepends=True), text.splitlines(keepends=True)
                yield f"{name} compared with {nearest}", "".join(unified_diff(*lines, nearest, name))
        texts[name] = text


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
