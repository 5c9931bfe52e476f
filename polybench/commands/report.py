"""`polybench report`: saved studies as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.saved import told
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.core.document.sweep import SweepDocument

if TYPE_CHECKING:
    from polybench.page import Part


@takes("results", "anonymous")
def report(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help=(
                "IDs of studies or sweeps, unique prefixes of them, `last` or `sweep-last`; or files of them"
                " (JSON)."
            ),
        ),
    ],
    how: Presentation,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file.")] = Path("report.html"),
) -> None:
    """Make one HTML file of saved studies: table, figures, why, the proof, programs, how to repeat it.

    It needs no network and no other file. Layers and an explanation are in it where they were measured. Of a
    sweep it has the curves, the best configurations and the table.

    Example: polybench report last -o report.html
    """
    from polybench.api.parts import part_of
    from polybench.page import render
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(how.results))
    page = render([_told(part_of(study, store), how) for study in studies])
    ensure_writable(output)
    emit(page, output)
    echo(f"wrote {output}", err=True)


def _told(part: Part, how: Presentation) -> Part:
    if isinstance(part, SweepDocument):
        return told(part, how)
    return part._replace(
        study=told(part.study, how),
        layers=part.layers and told(part.layers, how),
        explanation=part.explanation and told(part.explanation, how),
    )
