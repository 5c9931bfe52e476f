"""The figures of the docs' gallery, drawn from its saved studies: `make gallery` (`python -m tests.gallery`).

The pages are made from the same documents whenever the docs are (`docs/hooks.py`). A browser draws.
"""

from __future__ import annotations

from pathlib import Path

from polybench.core.document.layers import LayersDocument
from polybench.core.document.study import StudyDocument
from polybench.plots import draw
from polybench.plots.image import content
from polybench.plots.provenance import provenance
from polybench.report.belongings import layers_beside
from polybench.report.saved_studies import Store

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def figures(study: StudyDocument, store: Store) -> dict[str, StudyDocument | LayersDocument]:
    """What is drawn of a study, by the figure's name: speeds, starts, and layers where they are saved."""
    layers = layers_beside(study, store.layers())
    found: dict[str, StudyDocument | LayersDocument] = {"speed": study, "startup": study}
    return found | ({"layers": layers} if layers else {})


def main() -> None:
    """Draw all of them anew."""
    store = Store(GALLERY / "measured")
    folder = GALLERY / "figures"
    for old in folder.glob("*.svg"):
        old.unlink()
    for study in store.studies():
        for name, document in figures(study, store).items():
            path = folder / f"{study.id}.{name}.svg"
            path.write_bytes(content(draw(name, document), provenance(document), "svg"))
            print(path.relative_to(GALLERY), flush=True)


if __name__ == "__main__":
    main()
