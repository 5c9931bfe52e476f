"""`polybench view`: serves saved studies as local web pages."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.options import with_options
from polybench.cli.output import echo

_INTERRUPTED = 130


@with_options("results")
def view(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 selects a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser if there is a graphical display.")
    ] = True,
    results: Path | None = None,
) -> None:
    """Show saved studies in the browser: a list with filters, reports, differences and history.

    The server accepts requests of this machine only and writes nothing. Ctrl-C stops it.

    Example: polybench view --port 8080 --no-browser
    """
    from polybench.html_report.page import csp_with_figures
    from polybench.html_report.routes import Router
    from polybench.html_report.server import Server
    from polybench.html_report.server_pages import error_page
    from polybench.storage.store import Store, results_folder

    csp_with_figures(), error_page("", "")  # these report a missing package before the server starts
    store = Store(results_folder(results))
    with Server(Router(store), port) as server:
        echo(server.address)
        echo(f"serving the studies of {store.folder}; stop with Ctrl-C", err=True)
        if browser and _has_display():
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


def _has_display() -> bool:
    """Return True for a graphical display; without one, Python would open a browser in the terminal."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)
