"""Draws the figures of the docs' gallery from its saved studies: `make gallery` (`python -m tests.gallery`).

`docs/gallery_hooks.py` makes the pages from the same documents. A browser renders the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polybench.analysis.related_documents import newest_layers
from polybench.figures import draw
from polybench.figures.image_export import caption_for, export
from polybench.storage.store import Store

if TYPE_CHECKING:
    from polybench.figures import Drawable

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def figures(store: Store) -> dict[str, tuple[str, Drawable]]:
    """Return functions that draw each figure, by file name without suffix.

    A study has speeds, starts, break-even, accuracies if epochs were trained, and layers if they are saved. A sweep
    has its curves.
    """
    found: dict[str, tuple[str, Drawable]] = {}
    for study in store.studies():
        drawn: dict[str, Drawable] = {"speed": study, "startup": study, "break_even": study}
        if any(result.accuracy is not None for result in study.results):
            drawn["accuracy"] = study
        if layers := newest_layers(study, store.layers()):
            drawn["layers"] = layers
        found |= {f"{study.id}.{name}": (name, document) for name, document in drawn.items()}
    return found | {f"{sweep.id}.scaling": ("scaling", sweep) for sweep in store.sweeps()}


def main() -> None:
    """Draw all figures."""
    store = Store(GALLERY / "measured")
    folder = GALLERY / "figures"
    for old in folder.glob("*.svg"):
        old.unlink()
    for stem, (name, document) in figures(store).items():
        path = folder / f"{stem}.svg"
        path.write_bytes(export(draw(name, document), caption_for(document), "svg"))
        print(path.relative_to(GALLERY), flush=True)


if __name__ == "__main__":
    main()
