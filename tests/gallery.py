"""The figures of the docs' gallery, drawn from its saved studies: `make gallery` (`python -m tests.gallery`).

The pages are made from the same documents whenever the docs are (`docs/gallery_hooks.py`). A browser draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polybench.plots import draw
from polybench.plots.image import content
from polybench.plots.provenance import provenance
from polybench.report.belongings import layers_beside
from polybench.report.saved_studies import Store

if TYPE_CHECKING:
    from polybench.plots import Drawable

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def figures(store: Store) -> dict[str, tuple[str, Drawable]]:
    """File name, without suffix -> what is drawn there, and of what.

    Of a study speeds, starts, accuracies where epochs were trained, and layers where they are saved; of a
    sweep its curves.
    """
    found: dict[str, tuple[str, Drawable]] = {}
    for study in store.studies():
        drawn: dict[str, Drawable] = {"speed": study, "startup": study}
        if any(result.accuracy is not None for result in study.results):
            drawn["accuracy"] = study
        if layers := layers_beside(study, store.layers()):
            drawn["layers"] = layers
        found |= {f"{study.id}.{name}": (name, document) for name, document in drawn.items()}
    return found | {f"{sweep.id}.scaling": ("scaling", sweep) for sweep in store.sweeps()}


def main() -> None:
    """Draw all of them anew."""
    store = Store(GALLERY / "measured")
    folder = GALLERY / "figures"
    for old in folder.glob("*.svg"):
        old.unlink()
    for stem, (name, document) in figures(store).items():
        path = folder / f"{stem}.svg"
        path.write_bytes(content(draw(name, document), provenance(document), "svg"))
        print(path.relative_to(GALLERY), flush=True)


if __name__ == "__main__":
    main()
