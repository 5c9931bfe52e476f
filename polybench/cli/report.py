"""`polybench report`: one self-contained HTML report of saved studies, or static pages of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.cli.completion import saved
from polybench.cli.options import with_options
from polybench.cli.output import OutputOptions, anonymize_if_requested, check_writable, echo, write
from polybench.errors import BadInput
from polybench.schema.measurements import OverheadDocument, SweepDocument

if TYPE_CHECKING:
    from polybench.html_report import Section
    from polybench.storage.store import Store

_DEFAULT_FILE, _DEFAULT_FOLDER = Path("report.html"), Path("report")


@with_options("prices", "results", "anonymous")
def report(
    options: OutputOptions,
    studies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="Studies, sweeps or overheads: IDs, unique prefixes, `last`, `sweep-last`, `overhead-last`, or paths"
            " of logs (.jsonl).",
            autocompletion=saved("study", "sweep", "overhead"),
        ),
    ] = None,
    all_studies: Annotated[
        bool, typer.Option("--all", help="Write a folder of pages about all saved studies, sweeps and overheads.")
    ] = False,
    prices: Mapping[str, float] | None = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write, or with --all the folder.",
            show_default=f"{_DEFAULT_FILE}, or {_DEFAULT_FOLDER} with --all",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """The report is one file that needs no network. It includes saved layers and explanations of a study, and
    the curves, best configurations and table of a sweep, or the fits of an overhead. With --price, costs are the
    saved times multiplied by these prices.

    With --all, the folder has a report of each, a list with filters, the difference of each study to the one before
    it of the same workload on the same machine, and the history. They need no server.

    Example: polybench report --all -o pages --open
    """
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(options.results))
    if not all_studies:
        if not studies:
            raise BadInput("no studies: expected IDs, such as polybench report last, or --all")
        page = output or _DEFAULT_FILE
        _write_report(studies, store, prices, options, page)
    elif studies:
        raise BadInput(f"{studies[0]} with --all: expected either IDs or --all")
    elif prices or options.anonymous:
        raise BadInput(f"{'--price' if prices else '--anonymous'} with --all: expected IDs: leave out one of the two")
    else:
        page = _write_pages(store, output or _DEFAULT_FOLDER)
    echo(f"wrote {page}", err=True)
    if open_page:
        _open(page)


def _write_report(
    studies: list[str], store: Store, prices: Mapping[str, float] | None, options: OutputOptions, output: Path
) -> None:
    from polybench.api.results import load_sections
    from polybench.html_report import render_report

    page = render_report([_anonymize(section, options) for section in load_sections(studies, store, prices)])
    check_writable(output)
    write(page, output)


def _anonymize(section: Section, options: OutputOptions) -> Section:
    if isinstance(section, SweepDocument | OverheadDocument):
        return anonymize_if_requested(section, options)
    return section._replace(
        study=anonymize_if_requested(section.study, options),
        layers=section.layers and anonymize_if_requested(section.layers, options),
        explanation=section.explanation and anonymize_if_requested(section.explanation, options),
    )


def _write_pages(store: Store, folder: Path) -> Path:
    """Write the pages of all documents into a folder, whose other files remain; return the path of the list."""
    from polybench.api.pages import Pages
    from polybench.html_report.pages import HISTORY, LIST

    pages = Pages(store, warn=lambda text: echo(f"warning: {text}", err=True))
    for name in (HISTORY, LIST):
        _check_replaceable(folder / name)
    for page in pages:
        path = folder / page.path
        _check_replaceable(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write pages to {folder}: {error.strerror}; name another folder with -o") from error
        check_writable(path)
        write(page.text, path)
    return folder / LIST


def _check_replaceable(path: Path) -> None:
    """Raise BadInput if the file exists and is not an earlier page of polybench."""
    from polybench.data.disk import exists, open_regular_file
    from polybench.html_report.pages import is_page

    if not exists(path):
        return
    try:
        with open_regular_file(path) as file:
            if not is_page(file.read(200)):
                raise BadInput(f"{path} is not a page of polybench and would be lost: name another folder with -o")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; name another folder with -o") from error


def _open(page: Path) -> None:
    import webbrowser

    address = page.resolve().as_uri()
    if not webbrowser.open(address):
        echo(f"warning: no browser found; open {address}", err=True)
