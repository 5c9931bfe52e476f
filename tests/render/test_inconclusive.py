"""An inconclusive ratio is marked wherever it is shown, and is in no headline, label or list."""

from __future__ import annotations

import re

import pytest

from polybench.figures import draw
from polybench.html_report import render_report, study_section, sweep_section
from polybench.html_report.study_section import StudySection
from polybench.render import FORMATS, render
from polybench.results.comparisons import add_comparisons
from polybench.results.sweep import build_sweep_document
from polybench.schema.measurements import SweepDocument
from polybench.schema.metrics import METRICS
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.study import StudyDocument, to_json
from polybench.storage.summaries import summarize_document
from tests.factories import measured, study

BUSY = Interference(blocks=[[BlockCounters(1.0, 1.0, 0.5, 0.0, affected=True)]], blocks_affected=1)
RATIO = re.compile(r"27\.19|27\.2\b|0\.0368")
"""The ratio of both step times, or its inverse."""


def disturbed() -> StudyDocument:
    document = study(measured("torch/cpu", 0.2719, interference=BUSY), measured("tf/cpu", 0.01))
    add_comparisons(document.results, "torch/cpu", {"cpu": 1.0})
    return document


def swept() -> SweepDocument:
    fast = study(measured("torch/cpu", 0.01, interference=BUSY))
    return build_sweep_document({"threads": [1, 2]}, [({"threads": 1}, disturbed()), ({"threads": 2}, fast)], [], 2)


def unmarked(text: str) -> list[str]:
    """Return the surroundings of each ratio without a mark."""
    found = (
        (text[max(0, one.start() - 60) : one.start()], text[one.start() : one.end() + 30])
        for one in RATIO.finditer(text)
    )
    return [before + after for before, after in found if "inconclusive" not in after]


@pytest.mark.parametrize("format", [name for name, row in FORMATS.items() if row.for_humans])
@pytest.mark.parametrize("document", [disturbed(), swept()], ids=["study", "sweep"])
def test_the_ratio_is_marked_in_every_format(document: StudyDocument | SweepDocument, format: str) -> None:
    assert unmarked(render(document, format)) == []


def test_records_carry_the_flag() -> None:
    tf = disturbed().result("tf/cpu")
    assert METRICS["speedup"].fields(tf)["speedup_inconclusive"] is True
    assert METRICS["relative_cost"].fields(tf)["relative_cost_inconclusive"] is True
    assert tf.vs_baseline is not None
    assert tf.vs_baseline.inconclusive_reason == "interference affected 1 of 1 timing blocks of torch/cpu"


def test_pages_figures_and_lists_have_no_ratio() -> None:
    document, sweep = disturbed(), swept()
    assert study_section.headline(document).startswith(
        "Inconclusive: tf and torch on cpu: interference affected 1 of 1"
    )
    assert sweep_section.headline(sweep).startswith("Inconclusive: interference affected 1 of 1")
    page = render_report([StudySection(document), sweep])
    assert unmarked(re.sub(r"<script.*?</script>", "", page, flags=re.S)) == []  # figures have marks at these places
    labels = [one["text"] for one in draw("speed", document).layout["annotations"]]
    assert labels == ["inconclusive", "baseline"]
    summary = summarize_document(document.id, to_json(document), 0.0)
    assert summary.fastest is not None
    assert summary.fastest.inconclusive
