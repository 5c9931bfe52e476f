from __future__ import annotations

import pytest

from polybench.render import FORMATS, render, render_study
from polybench.render.auto_columns import important_columns
from polybench.schema.metrics import METRICS, Metric
from polybench.schema.study import from_json
from tests.factories import study, typical_study


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_ends_with_one_newline(name: str) -> None:
    for one in (typical_study(), study()):
        text = render(name, one, list(METRICS.values()))
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_contains_every_configuration(name: str) -> None:
    text = render_study(typical_study(), name).replace("\\", "")
    assert all(result.configuration in text for result in typical_study().results)


def test_machine_formats_contain_all_columns() -> None:
    header, *_ = render_study(typical_study(), "csv").splitlines()
    assert set(METRICS) <= {column.partition(" ")[0] for column in header.split(",")}
    assert len(important_columns(typical_study(), None)) < len(METRICS)
    assert METRICS["second_step"].title not in render_study(typical_study(), "markdown")


def test_json_is_the_saved_document(columns: list[Metric]) -> None:
    assert from_json(render("json", typical_study(), columns).encode()) == typical_study()


def test_unknown_format_raises_key_error(columns: list[Metric]) -> None:
    with pytest.raises(KeyError):
        render("xml", typical_study(), columns)
