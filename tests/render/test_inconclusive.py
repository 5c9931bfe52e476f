"""An inconclusive ratio is marked wherever it is shown, and is in no headline, label or list.

A machine was busy while torch was measured: its step took 271.9 ms instead of 10 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.analysis.diff import diff
from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.history import build_history
from polybench.analysis.merge import merge
from polybench.api import results
from polybench.api.pages import Pages
from polybench.figures import FIGURES, draw
from polybench.figures.figure import HOLLOW, Figure, NoData
from polybench.html_report import render_report, study_section, sweep_section
from polybench.html_report.study_section import StudySection
from polybench.render import EXPLANATION_FORMATS, FORMATS, explanation, render, study_list
from polybench.results.comparisons import add_comparisons
from polybench.results.summaries import summarize
from polybench.results.sweep import MeasuredPoint, build_sweep_document
from polybench.schema.analyses import DiffDocument, HistoryDocument, MergeDocument
from polybench.schema.documents import DOCUMENT_KINDS, kind_of
from polybench.schema.measurements import LayersDocument, OverheadDocument, SweepDocument
from polybench.schema.metadata import PublishedResult
from polybench.schema.metrics import METRICS
from polybench.schema.resources import GarbageCollection
from polybench.schema.result import ColdStart
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import printed_json
from tests.factories import DISTURBED, layers, measured, saved_again, study
from tests.figures.documents import full_overhead
from tests.log_of import save_document, save_sweep

RATIO = re.compile(r"27\.19|27\.2\b|26\.[23]|0\.0368|96\.3|3\.7%|2,[67]\d\d%")
"""The ratio of both step times, its inverse, and their distances from 1, also as percentages."""


def disturbed() -> StudyDocument:
    torch = measured("torch/cpu", 0.2719, interference=DISTURBED, startup=ColdStart(0.0, 0.1, 0.0, 0.0, 0.3, 0.02))
    document = study(torch, measured("tf/cpu", 0.01, gc=GarbageCollection(0.01, 1)))
    document.settings.prices = {"cpu": 1.0}
    source: Any = {"label": "theirs", "hardware": "", "source": "a blog", "configuration": "torch/cpu"}
    document.published = [PublishedResult(quantity="step", value=0.01, unit="s", metric="step_time", **source)]
    add_comparisons(document.results, "torch/cpu", document.settings.prices)
    return document


def quiet() -> StudyDocument:
    return saved_again(study(measured("torch/cpu", 0.01), measured("tf/cpu", 0.01)))


def swept() -> SweepDocument:
    return build_sweep_document({"threads": [1, 2]}, points("threads"), [], 2)


def points(axis: str) -> list[MeasuredPoint]:
    fast = study(measured("torch/cpu", 0.01, interference=DISTURBED), measured("tf/cpu", 0.02))
    return [({axis: 1}, disturbed()), ({axis: 2}, fast)]


def compared() -> DiffDocument:
    return diff(quiet(), disturbed())


def merged() -> MergeDocument:
    other = quiet()
    other.host = msgspec.structs.replace(other.host, hostname="other")
    return merge([disturbed(), other], {"cpu": 1.0})


def timed_layers() -> LayersDocument:
    times = {"torch/cpu": {("conv1", "forward"): 0.2719}, "tf/cpu": {("conv1", "forward"): 0.01}}
    return layers(disturbed(), {"torch/cpu": 0.2719, "tf/cpu": 0.01}, times)  # type: ignore[arg-type]


def measured_again() -> HistoryDocument:
    days = [
        msgspec.structs.replace(one, id=f"2025010{day}-000000-abcd", created=f"2025-01-0{day}T00:00:00Z")
        for day, one in enumerate([quiet(), quiet(), quiet(), disturbed(), disturbed(), disturbed()], start=1)
    ]
    return build_history(reversed(days))


def refuted_fit() -> OverheadDocument:
    """Create an overhead of 27.2 ms whose points are not on a line."""
    document = full_overhead()
    torch = msgspec.structs.replace(document.configurations[0], overhead_seconds=0.0272, max_relative_residual=0.4)
    return msgspec.structs.replace(document, configurations=[torch])


DOCUMENTS: list[Callable[[], Any]] = [
    disturbed, swept, compared, merged, timed_layers, measured_again, refuted_fit,
]  # fmt: skip
each_document = pytest.mark.parametrize("make", DOCUMENTS, ids=lambda make: make.__name__)

NO_COMPARISON = {"peak", "allocations"}
"""Kinds of documents that compare no times. Explanations and bisections have tests of their own."""


def test_every_kind_of_document_is_rendered() -> None:
    rendered = {kind_of(make().schema) for make in DOCUMENTS}
    assert rendered == {*DOCUMENT_KINDS} - NO_COMPARISON - {"explanation", "bisect"}
    assert rendered | NO_COMPARISON >= {spec.kind for spec in FIGURES.values()}


def unmarked(text: str) -> list[str]:
    """Return the surroundings of each ratio without a mark."""
    found = (
        (text[max(0, one.start() - 60) : one.start()], text[one.start() : one.end() + 30])
        for one in RATIO.finditer(text)
    )
    return [before + after for before, after in found if "annot tell" not in after]


def figures(document: Any) -> dict[str, Figure]:
    """Draw all figures of the document."""
    drawn = {}
    for name, spec in FIGURES.items():
        if spec.kind == kind_of(document.schema):
            try:
                drawn[name] = draw(name, document)
            except NoData:
                continue
    return drawn


def texts(value: Any) -> list[str]:
    """List all texts in the traces or the layout of a figure."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("format", [name for name, row in FORMATS.items() if row.for_humans])
@each_document
def test_the_ratio_is_marked_in_every_format(make: Callable[[], Any], format: str) -> None:
    assert unmarked(render(make(), format, published=True)) == []


@pytest.mark.parametrize("format", [one for one in EXPLANATION_FORMATS if one != "json"])
def test_it_is_marked_in_explanations(format: str) -> None:
    found = explain(disturbed(), SavedDocuments([timed_layers()]))
    assert unmarked(explanation.render(found, format)) == []


@each_document
def test_it_is_in_no_text_of_a_figure_and_its_mark_is_hollow(make: Callable[[], Any]) -> None:
    for name, figure in figures(make()).items():
        shown = [figure.title, figure.note, *figure.text_alternative, *texts([figure.traces, figure.layout])]
        if name not in ("step_times", "distributions", "layers", "roofline"):  # step times of each engine
            assert unmarked("\n".join(shown)) == [], name
        assert ("-open" in str(figure.traces)) == (HOLLOW in figure.note), name
    for name in {disturbed: ("speed", "cost"), swept: ("scaling",), measured_again: ("history",)}.get(make, ()):
        assert HOLLOW in draw(name, make()).note


def test_speed_labels_it_inconclusive_and_break_even_leaves_it_out() -> None:
    labels = [one["text"] for one in draw("speed", disturbed()).layout["annotations"]]
    assert labels == ["cannot tell", "baseline"]
    assert "break_even" not in figures(disturbed())
    assert METRICS["break_even_steps"].text(disturbed().result("tf/cpu")) == "(no result)"


@each_document
def test_notebooks_and_rows_mark_it(make: Callable[[], Any]) -> None:
    document = make()
    kind = kind_of(document.schema)
    result: Any = getattr(results, f"{kind.title()}Result")(
        document, *([b""] if kind in ("study", "sweep", "overhead", "layers") else [])
    )
    assert unmarked(result._repr_markdown_()) == []
    assert unmarked(str(result)) == []
    assert unmarked(repr(result)) == []
    for row in result.rows():
        ratios = {name: row[name] for name in ("speedup", "ratio", "relative_cost") if row.get(name)}
        if any(RATIO.search(f"{ratio:.4g}") for ratio in ratios.values()):
            assert row.get("speedup_inconclusive") or row.get("inconclusive_reason") or row["verdict"] == "cannot tell"
    if kind == "history":
        assert result.change_points() == []


def test_records_carry_the_flag() -> None:
    tf = disturbed().result("tf/cpu")
    assert METRICS["speedup"].fields(tf)["speedup_inconclusive"] is True
    assert METRICS["relative_cost"].fields(tf)["relative_cost_inconclusive"] is True
    assert tf.vs_baseline is not None
    assert tf.vs_baseline.inconclusive_reason == "interference affected 2 of 6 timing blocks of torch/cpu"
    for document in (swept(), merged()):
        assert "inconclusive_reason" in render(document, "csv").partition("\n")[0]


def test_pages_and_lists_have_no_ratio(tmp_path: Path) -> None:
    document, sweep = disturbed(), swept()
    assert study_section.headline(document).startswith("NO RESULT: interference affected 2 of 6")
    assert sweep_section.headline(sweep).startswith("Cannot tell: interference affected 2 of 6")
    assert "27" not in sweep_section.overhead_headline(refuted_fit())
    assert {row["label"] for row in study_section.results_table(document)["rows"]} == {""}
    found = explain(document, SavedDocuments([timed_layers()]))
    report = render_report([StudySection(document, (), timed_layers(), found), sweep, refuted_fit()])
    store = Store(tmp_path)
    again = saved_again(document, "20250103-000000-abcd")
    saved = [str(one.id) for one in (quiet(), again)]
    for one in (quiet(), again):
        save_document(store, one)
    for id, axis in (("sweep-20250101-000000-abcd", "threads"), ("overhead-20250101-000000-abcd", "batch_size")):
        save_sweep(store, id, points(axis))
        saved += [id, f"{id}.0", f"{id}.1"]
    pages = dict(Pages(store, warn=pytest.fail))
    assert pages.keys() == {
        "index.html",
        "history.html",
        f"diffs/{quiet().id}--{again.id}.html",
        *(f"reports/{id}.html" for id in saved),
    }
    for page in (report, *pages.values()):
        visible = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
        step_times = re.sub(r"27[12]\.?\d* ms|27\.2 ms", "", visible)  # of both engines, side by side
        assert unmarked(step_times) == []
    summary = summarize(document)
    assert summary.fastest is not None
    assert summary.fastest.inconclusive


def test_history_says_of_which_studies_it_cannot_tell_and_why() -> None:
    text = render(measured_again(), "table")
    busy = [line for line in text.splitlines() if "272 ms" in line]
    assert len(busy) == 3
    assert all("(cannot tell)" in line for line in busy)
    reason = "cannot tell: interference affected 2 of 6 timing blocks of torch/cpu"
    assert f"20250104-000000-abcd: {reason}" in " ".join(text.split())
    assert "inconclusive" not in text


@pytest.mark.parametrize("width", [80, 120, None])
def test_list_marks_it_in_terminals_of_every_width(width: int | None, tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_sweep(store, "sweep-20250101-000000-abcd", points("threads"))
    found = study_list.render(printed_json("list", "--results", tmp_path), width, show_points=True)
    _, _, *rows = found.partition("\n\n")[0].splitlines()
    assert len(rows) == 3
    assert all(" ?" in row for row in rows)
    assert "inconclusive" not in found
