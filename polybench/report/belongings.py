"""What is shown of a saved study beside itself: the programs of its cells, layers, why rows differ."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.layers import LayersDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.core.spec import Cell
from polybench.plain import STEPS, plain_script
from polybench.planning.follow_ups import has_layers
from polybench.report.belonging import layers_of
from polybench.report.explanation import Saved, explain
from polybench.report.listed import Filters
from polybench.report.saved_studies import Store

MOST = 300
"""Other studies of the same network on the same machine that are read, the newest: each is a file of up to
many megabytes."""


class Belongings(NamedTuple):
    """Of one study.

    Attributes:
        scripts: the plain script of each cell that has one.
        layers: None where none are saved that belong to it.
        explanation: None where there is nothing to compare.
    """

    scripts: list[tuple[str, str]]
    layers: LayersDocument | None
    explanation: ExplanationDocument | None


def belongings(study: StudyDocument, store: Store) -> Belongings:
    """Everything that is saved of the study, or follows from it."""
    scripts = [(result.cell, text) for result in study.results if (text := _script(study, result))]
    saved = saved_beside(study, store)
    return Belongings(scripts, layers_beside(study, saved.layers), _explanation(study, saved))


def saved_beside(study: StudyDocument, store: Store) -> Saved:
    """The documents that may belong to it: only what was measured on that machine, with that network, can."""
    alike = Filters(model=glob.escape(study.settings.model), host=glob.escape(study.host.hostname))
    return Saved(store.layers(), list(itertools.islice(store.studies(alike), MOST)))


def layers_beside(study: StudyDocument, saved: Sequence[LayersDocument]) -> LayersDocument | None:
    """The newest of them that belong to it, of as many of its cells as were measured together."""
    cells = [result.cell for result in study.results if result.ranked and has_layers(result)]
    for several in (cells, *([cell] for cell in cells)):
        if several and (found := layers_of(study, saved, several)):
            return found
    return None


def _explanation(study: StudyDocument, saved: Saved) -> ExplanationDocument | None:
    try:
        return explain(study, saved)
    except BadInput:  # fewer than two rows may be compared
        return None


def _script(study: StudyDocument, result: Result) -> str | None:
    """The plain script of a cell, with as many steps as a round had."""
    if study.settings.input == "pipeline" or not result.measured:
        return None
    variants = tuple(result.variant.split("+")) if result.variant else ()
    steps = max((len(one) for process in result.steps for one in process), default=STEPS)
    return plain_script(Cell(result.engine, variants, result.device), result.workload, steps)
