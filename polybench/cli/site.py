"""`polybench site`: a static site of saved studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.options import with_options
from polybench.cli.output import echo
from polybench.errors import BadInput


@with_options("results")
def site(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    results: Path | None = None,
    fail_on_change: Annotated[
        bool,
        typer.Option(
            "--fail-on-change", help="Exit with 1 if there are change points that the folder's last feed lacks."
        ),
    ] = False,
) -> None:
    """Write a static site of saved studies, for any web server.

    It lists the studies, their history with change points, and the difference at each of them; every document can be
    downloaded, and an RSS feed announces change points. The pages contain no scripts.

    Example: polybench site -o public
    """
    from polybench.html_report.site import write_site
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(results))
    try:
        new = write_site(store, output)
    except OSError as error:
        raise BadInput(f"cannot write the site to {output}: {error.strerror}") from error
    echo(f"wrote {output / 'index.html'}", err=True)
    for sentence in new:
        echo(sentence, err=True)
    raise typer.Exit(1 if fail_on_change and new else 0)
