"""`polybench report`: saved studies as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput

if TYPE_CHECKING:
    from polybench.core.document.explanation import ExplanationDocument
    from polybench.page import Chapter
    from polybench.report.explanation import Saved
    from polybench.report.saved_studies import Store


@takes("results", "anonymous")
def report(
    studies: Annotated[
        list[str], typer.Argument(metavar="ID...", help="IDs, unique prefixes of them, or `last`; or files.")
    ],
    how: Presentation,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file.")] = Path("report.html"),
) -> None:
    """Make one HTML file of saved studies: table, figures, why, the proof, programs, how to repeat it.

    It needs no network and no other file. Layers and an explanation are in it where they were measured.

    Example: polybench report last -o report.html
    """
    from polybench.page import render
    from polybench.report.explanation import Saved
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(how.results))
    documents = [store.load(study) for study in studies]
    saved = Saved(store.layers(), list(store.studies()))
    page = render([_told(chapter(document, store, saved), how) for document in documents])
    ensure_writable(output)
    emit(page, output)
    echo(f"wrote {output}", err=True)


def chapter(study: StudyDocument, store: Store, saved: Saved) -> Chapter:
    """A study with all that is saved of it."""
    from polybench.commands.saved import find_layers
    from polybench.page import Chapter

    scripts = [(result.cell, text) for result in study.results if (text := _script(study, result))]
    return Chapter(study, scripts, find_layers(study, store), _explanation(study, saved))


def _told(chapter: Chapter, how: Presentation) -> Chapter:
    from polybench.commands.saved import told

    study, _, layers, explanation = chapter
    return chapter._replace(
        study=told(study, how),
        layers=layers and told(layers, how),
        explanation=explanation and told(explanation, how),
    )


def _explanation(study: StudyDocument, saved: Saved) -> ExplanationDocument | None:
    from polybench.report.explanation import explain

    try:
        return explain(study, saved)
    except BadInput:  # fewer than two rows may be compared
        return None


def _script(study: StudyDocument, result: Result) -> str | None:
    """The plain script of a cell, with as many steps as a round had."""
    from polybench.commands.describe import STEPS
    from polybench.core.spec import Cell
    from polybench.plain import plain_script

    if study.settings.input == "pipeline" or not result.measured:
        return None
    variants = tuple((result.variant or "").split("+")) if result.variant else ()
    steps = max((len(one) for process in result.steps for one in process), default=STEPS)
    return plain_script(Cell(result.engine, variants, result.device), result.workload, steps)
