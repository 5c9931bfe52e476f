"""What is said of a network that takes sequences: nowhere are they called images."""

from __future__ import annotations

import msgspec
import pytest

from polybench.core.document.study import StudyDocument
from polybench.export import FORMATS, merge, overhead, sweep
from polybench.export.rendering import rendered
from polybench.metrics import METRICS
from polybench.page.sweep import headline
from polybench.page.table import table_of
from polybench.plots.accuracy import draw as accuracy
from polybench.plots.scaling import draw as scaling
from polybench.report.changed import other_work
from polybench.report.merge import merge as merged
from polybench.report.overhead import summarize
from tests.plots.documents import full_study, full_sweep


def of(study: StudyDocument, unit: str, **changes: object) -> StudyDocument:
    settings = msgspec.structs.replace(study.settings, unit=unit, **changes)
    return msgspec.structs.replace(study, settings=settings)


@pytest.fixture(params=["image", "sequence"])
def unit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("format", [name for name, row in FORMATS.items() if row.audience == "people"])
def test_columns_of_a_study(format: str, unit: str) -> None:
    text = rendered(
        of(full_study(), unit), format, list(METRICS.values()), FORMATS, published=False, width=999
    )
    said = "".join(text.split())
    assert ("images" in said, "sequences" in said) == (unit == "image", unit == "sequence")


def test_the_columns_of_a_page(unit: str) -> None:
    titles = [column.title for column in table_of(of(full_study(), unit)).columns]
    assert f"{unit}s per s" in titles
    assert f"% of test {unit}s" in accuracy(of(full_study(), unit)).layout["yaxis"]["title"]["text"]


def test_a_sweep(unit: str) -> None:
    told = msgspec.structs.replace(full_sweep(), unit=unit)
    for text in (sweep.render(told, "table"), headline(told), str(scaling(told))):
        assert ("images" in text, "sequences" in text) == (unit == "image", unit == "sequence")


def test_fixed_cost_and_several_machines(unit: str) -> None:
    studies = {size: of(full_study(), unit, batch_size=size) for size in (8, 16)}
    assert f"each of its {unit}s" in " ".join(overhead.render(summarize(studies, []), "table").split())
    other = msgspec.structs.replace(studies[8], id="other")
    assert f"{unit}s/s" in merge.render(merged([studies[8], other], {}), "table")


def test_other_data(unit: str) -> None:
    one, two = of(full_study(), unit), of(full_study(), unit, data_sha256="other")
    assert other_work(one, two, one.results[0], two.results[0]) == f"other {unit}s"
