"""`polybench explain`: a saved difference in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from polybench.commands.outcome import emit, ensure_writable, exit_code_of_layers
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput, PolybenchError
from polybench.core.names import pick
from polybench.core.spec import Study

if TYPE_CHECKING:
    from polybench.measuring.progress import Progress
    from polybench.report.explanation import Saved
    from polybench.report.saved_studies import Store


@takes("output", "results")
def explain(
    study: Annotated[str, typer.Argument(metavar="ID", help="An ID, a unique prefix of one, or `last`.")],
    how: Presentation,
    against: Annotated[
        str | None,
        typer.Option("--against", help="The cell to compare with.", show_default="the study's baseline"),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
) -> None:
    """Say in words and numbers why one row of a saved study is faster; nothing is measured.

    Layers, sweeps and fixed costs count where they are saved, and were measured as the study was.

    Example: polybench explain last --against torch/cpu
    """
    from polybench.export.explanation import FORMATS, render
    from polybench.report.belongings import saved_beside
    from polybench.report.explanation import explain
    from polybench.report.saved_studies import Store, results_folder

    pick(format, dict.fromkeys(FORMATS), "format")
    store = Store(results_folder(how.results))
    document = store.load(study)
    explanation = explain(document, saved_beside(document, store), against)
    ensure_writable(how.output)
    emit(render(explanation, format), how.output)


class Explained(NamedTuple):
    """What follows a study's table; None where there is nothing to compare."""

    document: ExplanationDocument | None
    code: int = 0
    """The exit code of what was measured for it."""


def explain_measured(
    document: StudyDocument,
    store: Store | None,
    progress: Progress,
    argv: list[str],
    asked: Study | None = None,
) -> Explained:
    """Explain a study that was just measured, whose document gets the sentences.

    Its layers are measured, and saved as the study was, unless saved ones belong to it; those of an anonymous
    study tell no more than it does. `asked` is what was measured, where it is known: an anonymous document
    does not say where the data lies.
    """
    from polybench.report.belongings import saved_beside
    from polybench.report.explanation import Saved, explain

    saved = saved_beside(document, store) if store is not None else Saved()
    wanted = _layers_to_measure(document, saved, asked)
    code = 0
    if wanted is not None:
        from polybench.measuring.layers import run_layers
        from polybench.measuring.study import new_context
        from polybench.report.anonymous import is_anonymous

        context = new_context(argv, anonymous=is_anonymous(document.host))
        try:
            layers = run_layers(wanted, progress, store=store, context=context)
        except PolybenchError as error:  # what the study measured is shown all the same
            progress.warn(f"the layers could not be measured: {error}")
            code = error.exit_code
        except KeyboardInterrupt:
            code = 130
        else:
            code = exit_code_of_layers(layers)
            saved = saved._replace(layers=[layers, *saved.layers])
    try:
        found = explain(document, saved)
    except BadInput as error:
        progress.warn(f"nothing to explain: {error}")
        return Explained(None, code)
    document.explanation = found.all_sentences()
    if store is not None:
        store.try_to_save(document)
    return Explained(found, code)


def _layers_to_measure(document: StudyDocument, saved: Saved, asked: Study | None) -> Study | None:
    """None where there are some, or can be none, or the study was interrupted."""
    from polybench.planning.follow_ups import for_layers, has_layers, measured_study
    from polybench.report.belonging import layers_of

    cells = [result for result in document.results if result.ranked and has_layers(result)]
    interrupted = any(result.status == "interrupted" for result in document.results)
    if len(cells) < 2 or interrupted or layers_of(document, saved.layers, [cell.cell for cell in cells]):
        return None
    study = measured_study(document)
    if asked is not None:
        study = msgspec.structs.replace(study, data=asked.data, env=asked.env)
    return for_layers(study, cells)
