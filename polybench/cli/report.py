"""`polybench report`: one self-contained HTML report of saved studies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.cli.completion import saved
from polybench.cli.options import with_options
from polybench.cli.output import OutputOptions, anonymize_if_requested, check_writable, echo, write
from polybench.schema.measurements import OverheadDocument, SweepDocument

if TYPE_CHECKING:
    from polybench.html_report import Section


@with_options("prices", "results", "anonymous")
def report(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Studies, sweeps or overheads: IDs, unique prefixes, `last`, `sweep-last`, `overhead-last`, or paths"
            " of JSON files.",
            autocompletion=saved(),
        ),
    ],
    options: OutputOptions,
    prices: Mapping[str, float] | None = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")] = Path("report.html"),
) -> None:
    """Write an HTML report of saved studies: tables, figures, explanations, parity checks and plain scripts.

    The report is one file that needs no network. It includes saved layers and explanations of a study, and
    the curves, best configurations and table of a sweep, or the fits of an overhead. With --price, costs are the
    saved times multiplied by these prices.

    Example: polybench report last -o report.html
    """
    from polybench.api.results import load_sections
    from polybench.html_report import render_report
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(options.results))
    page = render_report([_anonymize(section, options) for section in load_sections(studies, store, prices)])
    check_writable(output)
    write(page, output)
    echo(f"wrote {output}", err=True)


def _anonymize(section: Section, options: OutputOptions) -> Section:
    if isinstance(section, SweepDocument | OverheadDocument):
        return anonymize_if_requested(section, options)
    return section._replace(
        study=anonymize_if_requested(section.study, options),
        layers=section.layers and anonymize_if_requested(section.layers, options),
        explanation=section.explanation and anonymize_if_requested(section.explanation, options),
    )
