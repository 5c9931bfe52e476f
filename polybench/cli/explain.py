"""`polybench explain`: differences between configurations in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from polybench.cli.completion import saved
from polybench.cli.options import format_option, with_options
from polybench.cli.output import OutputOptions, check_writable, measured_exit_code, width, write
from polybench.errors import BadInput, PolybenchError
from polybench.render import EXPLANATION_FORMATS
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.analysis.explanation import SavedDocuments
    from polybench.runner.progress import Progress
    from polybench.storage.store import Store


@with_options("output", "results")
def explain(
    study: Annotated[
        str,
        typer.Argument(metavar="ID", help="Study: an ID, a unique prefix, or `last`.", autocompletion=saved("study")),
    ],
    options: OutputOptions,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="Configuration to compare with, such as torch/cpu.", show_default="the study's baseline"
        ),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="List faster settings and what to measure next; JSON always has them.")
    ] = False,
    format: Annotated[str, format_option(EXPLANATION_FORMATS)] = "table",
) -> None:
    """The explanation uses saved layers, sweeps and overheads with the same settings.

    Example: polybench explain last --baseline torch/cpu
    """
    from polybench.analysis.explanation import explain
    from polybench.analysis.related_documents import load_saved_documents
    from polybench.render.explanation import render
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(options.results))
    document = store.load(study)
    explanation = explain(document, load_saved_documents(document, store), baseline)
    check_writable(options.output)
    write(render(explanation, format, width(options.output), suggest=suggest), options.output)


class ExplainResult(NamedTuple):
    """Explanation below a study's table; None if there is nothing to compare."""

    document: ExplanationDocument | None
    code: int = 0
    """Exit code of the measurement of layers."""


def explain_study(
    document: StudyDocument, store: Store | None, progress: Progress, argv: list[str], requested: Study | None = None
) -> ExplainResult:
    """Explain a study that was just measured, and add the statements to its document.

    If no saved layers apply, their times are measured and saved like the study; layers of an anonymous study
    are anonymous.

    Args:
        document: the study.
        store: where to find and save documents; None saves nothing.
        progress: of the measurement of layers.
        argv: command line of the layers' document.
        requested: settings of the study, if known: an anonymous document does not contain the data's path.
    """
    from polybench.analysis.explanation import SavedDocuments, explain
    from polybench.analysis.related_documents import load_saved_documents

    saved = load_saved_documents(document, store) if store is not None else SavedDocuments()
    layers_study = _layers_to_measure(document, saved, requested)
    code = 0
    if layers_study is not None:
        from polybench.experiments.layers import run_layers
        from polybench.runner.prepare import new_header
        from polybench.storage.anonymize import is_anonymized

        context = new_header(argv, anonymous=is_anonymized(document.host))
        try:
            layers = run_layers(layers_study, progress, store=store, header=context).document
        except PolybenchError as error:  # the study's result is printed anyway
            progress.on_warning(f"the layers could not be measured: {error}")
            code = error.exit_code
        except KeyboardInterrupt:
            code = 130
        else:
            code = measured_exit_code(layers)
            saved = saved._replace(layers=[layers, *saved.layers])
    try:
        explanation = explain(document, saved)
    except BadInput as error:
        progress.on_warning(f"nothing to explain: {error}")
        return ExplainResult(None, code)
    document.explanation = explanation.all_statements()
    return ExplainResult(explanation, code)


def _layers_to_measure(document: StudyDocument, saved: SavedDocuments, requested: Study | None) -> Study | None:
    """Return the study whose layers to measure; None if saved layers apply or the study cannot have any."""
    from polybench.analysis.related_studies import find_layers
    from polybench.planning.suggested_commands import for_layers, has_layers, measured_study

    results = [result for result in document.results if result.is_ranked and has_layers(result)]
    if len(results) < 2 or any(result.status == "interrupted" for result in document.results):
        return None
    if find_layers(document, saved.layers, [result.configuration for result in results]):
        return None
    study = measured_study(document)
    if requested is not None:
        study = msgspec.structs.replace(study, data=requested.data, env=requested.env)
    return for_layers(study, results)
