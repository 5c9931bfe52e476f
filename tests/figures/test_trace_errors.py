"""Figures of two recorded trainings."""

from __future__ import annotations

import pytest

from polybench.figures.figure import NoData
from polybench.figures.trace_errors import draw_steps, draw_tensors
from polybench.html_report import render_report
from polybench.schema.trace import Cause, StepErrors, TensorErrors, TraceDiffDocument

MALICIOUS = "<b onclick=alert(1)>"


def document(*, is_equal: bool = False) -> TraceDiffDocument:
    """Two steps of two weights, one of which has a malicious name."""
    error = 0.0 if is_equal else 0.5
    steps = [StepErrors(step, 0.0, None, error / 2, error, None, error) for step in (0, 10)]
    tensors = [
        TensorErrors(step, name, 0.0, error if name == MALICIOUS else None, error)
        for step in (0, 10)
        for name in ("conv1", MALICIOUS)
    ]
    causes = [Cause(MALICIOUS, MALICIOUS, "loss", 1e-8)]
    return TraceDiffDocument(
        a=MALICIOUS, b="b", frameworks=("torch", "jax"), verdict=MALICIOUS, causes=causes, steps=steps, tensors=tensors
    )


def test_each_kind_of_error_is_a_line_over_the_steps() -> None:
    pytest.importorskip("plotly.graph_objects").Figure((figure := draw_steps(document())).traces, figure.layout)
    assert {trace["name"]: trace["y"] for trace in figure.traces} == {
        "loss": [0.25, 0.25], "gradients": [0.5, 0.5], "update": [0.5, 0.5]
    }  # fmt: skip
    assert figure.traces[0]["x"] == figure.layout["xaxis"]["categoryarray"] == ["0", "10"]
    assert figure.text_alternative[0] == "loss, step 0: 0.25"


def test_each_step_has_a_mark_in_the_row_of_a_layer() -> None:
    pytest.importorskip("plotly.graph_objects").Figure((figure := draw_tensors(document())).traces, figure.layout)
    assert [trace["name"] for trace in figure.traces] == ["step 0", "step 10"]
    assert figure.traces[0]["y"] == ["&lt;b onclick=alert(1)&gt;"]
    assert figure.layout["yaxis"]["categoryarray"] == ["conv1", "&lt;b onclick=alert(1)&gt;"]


def test_equal_trainings_have_no_figure() -> None:
    for draw in (draw_steps, draw_tensors):
        with pytest.raises(NoData, match="no difference that a figure can show"):
            draw(document(is_equal=True))


def test_a_report_escapes_the_texts_of_traces() -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    pytest.importorskip("plotly", reason="plotly is not installed")
    page = render_report([document(), document(is_equal=True)])
    assert MALICIOUS not in page
    assert page.count("data-figure=") == 2
