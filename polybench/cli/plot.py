"""`polybench plot`: writes a figure of a saved document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.cli.completion import one_of, saved
from polybench.cli.options import with_options
from polybench.cli.output import DOCUMENT_HELP, OutputOptions, anonymize_if_requested, check_writable, echo, write
from polybench.errors import BadInput
from polybench.figures import FIGURES, Kind, default_figure
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.schema.documents import AnyDocument
    from polybench.schema.measurements import LayersDocument
    from polybench.storage.store import Store

_FIGURE_LIST = "; ".join(f"{name}: {spec.summary}" for name, spec in FIGURES.items())


@with_options("prices", "results", "anonymous")
def plot(
    document: Annotated[str, typer.Argument(metavar="ID", help=DOCUMENT_HELP, autocompletion=saved())],
    options: OutputOptions,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write: .html, or .svg, .png, .pdf (need Chromium).")
    ],
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            help=f"Figure. {_FIGURE_LIST}.",
            show_default="the main figure of the document",
            autocompletion=one_of(FIGURES.names),
        ),
    ] = None,
    prices: Mapping[str, float] | None = None,
) -> None:
    """For a study, the figure `layers` uses saved layers with the same settings. With --price, costs are the saved
    times multiplied by these prices.

    Example: polybench plot last --figure step_times -o step_times.svg
    """
    from polybench.analysis.prices import check_prices
    from polybench.figures import draw
    from polybench.figures.image_export import caption_for, export, file_format
    from polybench.schema.documents import DOCUMENT_KINDS
    from polybench.storage.store import Store, load_document, results_folder

    suffix = file_format(output)
    store = Store(results_folder(options.results))
    loaded = load_document(document, store, prices=prices)
    check_prices(prices or (), [loaded])
    name = figure or default_figure(_kind(loaded))
    required = FIGURES.find(name).kind
    if required == "layers" and isinstance(loaded, StudyDocument):
        loaded = _find_layers(loaded, store)
    kind = _kind(loaded)
    if kind != required:
        available = ", ".join(one for one, spec in FIGURES.rows().items() if spec.kind == kind)
        raise BadInput(
            f"--figure {name}: expected {DOCUMENT_KINDS[required].description}, but {document} is"
            f" {DOCUMENT_KINDS[kind].description};"
            f" its figures are: {available}"
        )
    drawable: Any = anonymize_if_requested(loaded, options)
    image = export(draw(name, drawable), caption_for(drawable), suffix)
    check_writable(output)
    write(image, output)
    echo(f"wrote {output}", err=True)


def _kind(document: AnyDocument) -> Kind:
    from polybench.schema.documents import DOCUMENT_KINDS, kind_of

    kind = kind_of(document.schema)
    kinds: dict[str, Kind] = {spec.kind: spec.kind for spec in FIGURES.values()}
    if kind not in kinds:
        raise BadInput(f"{DOCUMENT_KINDS[kind].description} has no figure")
    return kinds[kind]


def _find_layers(study: StudyDocument, store: Store) -> LayersDocument:
    """Return the newest saved layers of a study; the error without any has the command that measures them."""
    from polybench.analysis.related_documents import newest_layers

    found = newest_layers(study, list(store.others("layers")))
    if found is None:
        from polybench.planning.suggested_commands import command_line, for_layers, has_layers, measured_study

        results = [result for result in study.results if result.is_ranked and has_layers(result)]
        layers_study = for_layers(measured_study(study), results) if results else None
        hint = f"; measure them: {command_line('layers', layers_study)}" if layers_study else ""
        raise BadInput(f"no saved layers belong to study {study.id}{hint}")
    return found
