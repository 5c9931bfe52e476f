"""Texts about networks with sequence input, which must not mention images."""

from __future__ import annotations

import msgspec
import pytest

from polybench.analysis.diff import work_differences
from polybench.analysis.merge import merge as merged
from polybench.figures.accuracy import draw as accuracy
from polybench.figures.scaling import draw as scaling
from polybench.html_report.study_section import results_table
from polybench.html_report.sweep_section import headline
from polybench.render import FORMATS, render
from polybench.results.sweep import build_overhead_document
from polybench.schema.metrics import METRICS
from polybench.schema.study import StudyDocument
from tests.figures.documents import full_study, full_sweep


def with_input_kind(study: StudyDocument, input_kind: str, **changes: object) -> StudyDocument:
    settings = msgspec.structs.replace(study.settings, input_kind=input_kind, **changes)
    return msgspec.structs.replace(study, settings=settings)


@pytest.fixture(params=["image", "sequence"])
def input_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("format", [name for name, row in FORMATS.items() if row.for_humans])
def test_column_titles_of_a_study(format: str, input_kind: str) -> None:
    text = render(with_input_kind(full_study(), input_kind), format, columns=list(METRICS.values()), width=999)
    compact = "".join(text.split())
    assert ("images" in compact, "sequences" in compact) == (input_kind == "image", input_kind == "sequence")


def test_column_titles_of_a_report(input_kind: str) -> None:
    titles = [column["title"] for column in results_table(with_input_kind(full_study(), input_kind))["columns"]]
    assert f"{input_kind}s/s" in titles
    assert (
        f"% of test {input_kind}s"
        in accuracy(with_input_kind(full_study(), input_kind)).layout["yaxis"]["title"]["text"]
    )


def test_sweep(input_kind: str) -> None:
    document = msgspec.structs.replace(full_sweep(), input_kind=input_kind)
    for text in (render(document), headline(document), str(scaling(document))):
        assert ("images" in text, "sequences" in text) == (input_kind == "image", input_kind == "sequence")


def test_overhead_and_merge(input_kind: str) -> None:
    studies = {size: with_input_kind(full_study(), input_kind, batch_size=size) for size in (8, 16)}
    assert f"batch size x time per {input_kind};" in " ".join(render(build_overhead_document(studies, [])).split())
    other = msgspec.structs.replace(studies[8], id="other")
    assert f"{input_kind}s/s" in render(merged([studies[8], other], {}))


def test_work_differences(input_kind: str) -> None:
    one, two = with_input_kind(full_study(), input_kind), with_input_kind(full_study(), input_kind, data_sha256="other")
    assert list(work_differences(one, two, one.results[0], two.results[0])) == [f"different {input_kind}s"]
