"""`polybench view`: the saved studies in a browser on this machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from polybench.commands.signature import takes
from polybench.commands.terminal import echo

_INTERRUPTED = 130


@takes("results")
def view(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1; 0 is one that is free.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, where there is a screen for one.")
    ] = True,
    results: Path | None = None,
) -> None:
    """Show saved studies as pages: a list with filters, reports, differences, cells over time.

    Only this machine is answered, and nothing is written. Ctrl-C ends it.

    Example: polybench view --port 8080 --no-browser
    """
    from polybench.page.policy import of_figures
    from polybench.page.served import problem_page
    from polybench.report.saved_studies import Store, results_folder
    from polybench.viewing.answers import Answers
    from polybench.viewing.server import Server

    of_figures(), problem_page("", "")  # what is not installed is said now
    store = Store(results_folder(results))
    with Server(Answers(store), port) as server:
        echo(server.address)
        echo(f"the studies in {store.folder}; Ctrl-C ends it", err=True)
        if browser and _has_screen():
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


def _has_screen() -> bool:
    """Elsewhere Python would open a browser within the terminal."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)
