"""Draws the figures of the docs' gallery from its saved studies: `make gallery` (`python -m tests.gallery`).

`docs/gallery_hooks.py` makes the pages from the same documents. A browser renders the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polybench.analysis.related_documents import newest_layers
from polybench.figures import draw
from polybench.figures.figure import NoData
from polybench.figures.image_export import caption_for, export
from polybench.schema.encoding import decode
from polybench.schema.measurements import SweepDocument
from polybench.storage.store import Store

if TYPE_CHECKING:
    from polybench.figures import Drawable

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"

THUMBNAIL = ".thumbnail"
_THUMBNAIL_WIDTH, _THUMBNAIL_HEIGHT = 440, 190


def figures(store: Store) -> dict[str, tuple[str, Drawable]]:
    """Return functions that draw each figure, by file name without suffix.

    A study has speeds, starts, break-even, accuracies and layers, if they were measured and have a verdict. A sweep has
    its curves. A sweep, and a study with a verdict, has a thumbnail, which has no note.
    """
    found: dict[str, tuple[str, Drawable]] = {}
    layers = list(store.others("layers"))
    for study in store.studies():
        drawn: dict[str, Drawable | None] = dict.fromkeys(("speed", "startup", "break_even", "accuracy"), study)
        drawn["layers"] = newest_layers(study, layers)
        found |= {
            f"{study.id}.{name}": (name, one) for name, one in drawn.items() if one is not None and _has_data(name, one)
        }
        if f"{study.id}.break_even" in found:
            found[f"{study.id}{THUMBNAIL}"] = ("speed", study)
    for sweep in sweeps(store):
        found |= {f"{sweep.id}.scaling": ("scaling", sweep), f"{sweep.id}{THUMBNAIL}": ("scaling", sweep)}
    return found


def sweeps(store: Store) -> list[SweepDocument]:
    """Return the sweeps of a folder: by their logs, and those that were printed before sweeps were logs."""
    printed = sorted((store.folder / "sweeps").glob("*.json"))
    return [*store.others("sweep"), *(decode(path.read_bytes(), SweepDocument) for path in printed)]


def _has_data(name: str, document: Drawable) -> bool:
    try:
        draw(name, document)
    except NoData:
        return False
    return True


def main() -> None:
    """Draw all figures."""
    store = Store(GALLERY / "measured")
    folder = GALLERY / "figures"
    for old in folder.glob("*.svg"):
        old.unlink()
    for stem, (name, document) in figures(store).items():
        path, figure = folder / f"{stem}.svg", draw(name, document)
        if stem.endswith(THUMBNAIL):
            small = figure._replace(note="", height=min(figure.height, _THUMBNAIL_HEIGHT))
            path.write_bytes(export(small, "", "svg", _THUMBNAIL_WIDTH))
        else:
            path.write_bytes(export(figure, caption_for(document), "svg"))
        print(path.relative_to(GALLERY), flush=True)


if __name__ == "__main__":
    main()
