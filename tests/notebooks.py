"""Executes the notebooks for the docs: `make notebooks` (`python -m tests.notebooks [NUMBER ...]`).

They run with the engines of POLYBENCH_NOTEBOOK_ENGINES (by default those in each notebook) on this
machine, which should be idle. kaleido renders figures with a browser.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"

LARGEST_BYTES = 300_000
"""Maximum bytes of a page with its pictures, because they are in the repository."""


class NotToBeShown(Exception):
    """A page would reveal private data of this machine or is too large; nothing is written."""


def page(path: Path, folder: Path) -> Path:
    """Execute a notebook and write it into `folder` as Markdown, with PNG files; return its path.

    Raises:
        NotToBeShown: an output contains names or folders of this machine, or the page is too large.
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    import nbclient
    import nbformat
    from nbconvert import MarkdownExporter

    book = nbformat.read(path, as_version=4)
    environment = os.environ | {"PLOTLY_RENDERER": "png"}
    with tempfile.TemporaryDirectory(prefix="notebook-") as empty:
        client = nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": empty}})
        client.execute(env=environment)
    exporter = MarkdownExporter()
    text, resources = exporter.from_notebook_node(book, {"unique_key": path.stem})
    pictures: dict[str, bytes] = resources.get("outputs", {})
    _check(path.stem, text, pictures)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{path.stem}*"):
        old.unlink()
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
    (written := folder / f"{path.stem}.md").write_text(text, "utf-8")
    return written


def _check(name: str, text: str, pictures: dict[str, Any]) -> None:
    own = {str(Path.home()), str(ROOT), tempfile.gettempdir(), socket.gethostname()}
    found = sorted(one for one in own if one in text)
    if found:
        raise NotToBeShown(f"{name} would show {', '.join(found)}")
    size = len(text.encode()) + sum(map(len, pictures.values()))
    if size > LARGEST_BYTES:
        raise NotToBeShown(f"{name} has {size:,} bytes, more than {LARGEST_BYTES:,}")


def main(wanted: list[str]) -> None:
    """Write the pages with these numbers, or of all notebooks."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not wanted or path.stem.partition("_")[0] in wanted:
            print(f"{path.name} -> {page(path, PAGES).relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
