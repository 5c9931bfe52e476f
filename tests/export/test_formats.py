from __future__ import annotations

import pytest

from polybench.core.document.study import from_json
from polybench.export import FORMATS, render
from polybench.export.rendering import important_columns, rendered
from polybench.metrics import METRICS
from polybench.metrics.base import Metric
from tests.factories import study, typical_study


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_ends_with_one_newline(name: str) -> None:
    for one in (typical_study(), study()):
        text = render(name, one, list(METRICS.values()))
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_every_cell_that_has_a_result(name: str) -> None:
    text = rendered(typical_study(), name).replace("\\", "")
    assert all(result.cell in text for result in typical_study().results)


def test_people_get_the_important_columns_and_programs_all() -> None:
    header, *_ = rendered(typical_study(), "csv").splitlines()
    assert set(METRICS) <= {column.partition(" ")[0] for column in header.split(",")}
    assert len(important_columns(typical_study(), None)) < len(METRICS)
    assert METRICS["second_step"].title not in rendered(typical_study(), "markdown")


def test_json_is_the_saved_document(columns: list[Metric]) -> None:
    assert from_json(render("json", typical_study(), columns).encode()) == typical_study()


def test_unknown_format(columns: list[Metric]) -> None:
    with pytest.raises(KeyError):
        render("xml", typical_study(), columns)
