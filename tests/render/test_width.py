"""No table is wider than its terminal."""

from __future__ import annotations

import pytest

from polybench.analysis.explanation import explain
from polybench.analysis.related_documents import load_saved_documents
from polybench.render import explanation, render
from polybench.schema.documents import kind_of
from polybench.schema.measurements import LayersDocument, SweepDocument
from polybench.schema.parity import ParityCheck
from polybench.schema.result import BaselineComparison
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.factories import measured, study, unmeasured
from tests.figures.test_all_figures import DOCUMENTS as OTHERS
from tests.gallery import GALLERY, sweeps

Saved = StudyDocument | LayersDocument | SweepDocument

STORE = Store(GALLERY / "measured")
WIDTHS = (60, 80, 200)
each_width = pytest.mark.parametrize("width", WIDTHS)


def too_long(text: str, width: int) -> list[str]:
    """Return the lines that are too long, without commands, which stay on a line to be copied."""
    return [line for line in text.splitlines() if len(line) > width and not line.startswith("    polybench")]


@pytest.fixture(scope="module")
def studies() -> list[StudyDocument]:
    return [*STORE.studies()]


@pytest.fixture(scope="module")
def saved(studies: list[StudyDocument]) -> list[Saved]:
    """Return the documents of the gallery."""
    return [*studies, *STORE.others("layers"), *sweeps(STORE)]


@each_width
def test_saved_documents_fit_their_terminal(saved: list[Saved], width: int) -> None:
    for document in saved:
        assert too_long(render(document, width=width), width) == [], document.id
        assert render(document, width=40), document.id


@each_width
def test_explanations_fit_their_terminal(studies: list[StudyDocument], width: int) -> None:
    for document in studies:
        found = explain(document, load_saved_documents(document, STORE))
        assert too_long(explanation.render(found, "table", width), width) == [], document.id
        assert explanation.render(found, "table", 40), document.id


@each_width
@pytest.mark.parametrize("kind", OTHERS)
def test_every_kind_of_document_fits_its_terminal(kind: str, width: int) -> None:
    assert too_long(render(OTHERS[kind], width=width), width) == []


WIDE = BaselineComparison("torch/cpu", 1.0, (1e-300, 1e300))
POINT = BaselineComparison("torch/cpu", 1.0, (1.0, 1.0))
DIFFICULT = {
    "one row": study(measured("torch/cpu", 0.0165)),
    "nothing": study(unmeasured("torch/cpu", "failed", "crashed"), unmeasured("tf/cpu", "failed", "crashed")),
    "no rows": study(),
    "40 rows": study(*(measured(f"torch/cpu#{number}", 0.0165 + number / 1000) for number in range(2, 42))),
    "long names": study(measured("torch/cpu", 0.0165), measured(f"{'x' * 60}/cpu", 0.01)),
    "no width": study(measured("torch/cpu", 0.0165), measured("tf/cpu", 0.0165, vs_baseline=POINT)),
    "infinite width": study(measured("torch/cpu", 0.0165), measured("tf/cpu", 0.0165, vs_baseline=WIDE)),
    "failed check": study(measured("torch/cpu", 0.0165, parity=ParityCheck("fail", "x" * 90))),
}


@pytest.mark.parametrize("width", [40, *WIDTHS])
@pytest.mark.parametrize("name", DIFFICULT)
def test_difficult_studies_are_readable(name: str, width: int) -> None:
    text = render(DIFFICULT[name], width=width)
    for result in DIFFICULT[name].results:
        assert result.configuration in text or result.configuration.replace("/cpu", "") in "".join(text.split())
    assert len(text.splitlines()) < 70


def test_the_tests_have_every_kind_of_saved_document(saved: list[Saved]) -> None:
    assert {kind_of(one.schema) for one in saved} == {"study", "layers", "sweep"}
