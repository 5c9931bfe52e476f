"""`polybench plot`: a figure of a saved document, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.saved import layers_with, told
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.plots import FIGURES, Kind, default_of

if TYPE_CHECKING:
    from polybench.report.saved_documents import SomeDocument

_LIST = "; ".join(f"{name}: {row.summary}" for name, row in FIGURES.items())


@takes("results", "anonymous")
def plot(
    document: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help=(
                "An ID, a unique prefix of one, `last`, `sweep-last` or `overhead-last`; or the file of a"
                " document (JSON)."
            ),
        ),
    ],
    how: Presentation,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The file: .svg, .png, .pdf or .html, which needs no browser."),
    ],
    figure: Annotated[
        str | None, typer.Option("--figure", help=f"{_LIST}.", show_default="by its kind")
    ] = None,
) -> None:
    """Draw a figure of a saved study, sweep, overhead or another document; nothing is measured.

    Layers are drawn where they were measured as the study was. Files but .html need Chromium.

    Example: polybench plot last --figure steps -o steps.svg
    """
    from polybench.plots import draw
    from polybench.plots.image import content, suffix_of
    from polybench.plots.provenance import provenance
    from polybench.report.saved_documents import called, document_of
    from polybench.report.saved_studies import Store, results_folder

    suffix = suffix_of(output)
    store = Store(results_folder(how.results))
    shown = document_of(document, store)
    name = figure or default_of(_kind(shown))
    wanted = pick(name, FIGURES, "figure").of
    if wanted == "layers" and isinstance(shown, StudyDocument):
        shown = layers_with(shown, store)
    if _kind(shown) != wanted:
        known = ", ".join(one for one, row in FIGURES.items() if row.of == _kind(shown))
        what = f"{document} is {called(_kind(shown))}"
        raise BadInput(f"--figure {name} is of {called(wanted)}, and {what}: it has {known}")
    shown = told(shown, how)
    drawn = content(draw(name, shown), provenance(shown), suffix)
    ensure_writable(output)
    emit(drawn, output)
    echo(f"wrote {output}", err=True)


def _kind(document: SomeDocument) -> Kind:
    from polybench.report.saved_documents import kind_of

    kinds: dict[str, Kind] = {row.of: row.of for row in FIGURES.values()}
    return kinds[kind_of(document)]
