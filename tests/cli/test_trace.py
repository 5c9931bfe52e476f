"""`polybench trace`: formats and messages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polybench
from tests.commands import printed, printed_json, refused


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """Two trainings by gradient descent, the second one with half of the learning rate."""
    files = tmp_path / "a.trace", tmp_path / "b.trace"
    for file, rate in zip(files, (0.5, 0.25), strict=True):
        weight = np.linspace(1, 2, 12).reshape(3, 4)
        with polybench.record(file, model={"weight": weight}, settings={"name": "sgd", "learning_rate": rate}) as trace:
            for _ in range(3):
                gradient = weight / 3 + 0.1
                weight = weight - rate * gradient
                trace.step(loss=float(weight.sum()), gradients={"weight": gradient}, weights={"weight": weight})
    return files


def test_the_verdict_names_the_cause(traces: tuple[Path, Path]) -> None:
    text = printed("trace", "diff", *traces)
    assert "The learning rate is 0.25 in B, and 0.5 in A." in " ".join(text.split())
    document = printed_json("trace", "diff", *traces)
    assert document["schema"] == "polybench.trace-diff/1"
    assert {*document["first_difference"]} == {"step", "kind", "tensor", "error"}
    assert [{"cause", "evidence", "explains"} <= {*cause} for cause in document["causes"]] == [True]


@pytest.mark.parametrize("format", ["table", "markdown", "github", "html", "csv", "latex"])
def test_every_format_has_the_steps(format: str, traces: tuple[Path, Path]) -> None:
    for text in (
        printed("trace", "diff", *traces, "--format", format),
        printed("trace", "show", traces[0], "--format", format),
    ):
        assert "step" in text.lower()


def test_html_is_a_report_with_the_errors_over_steps_and_layers(traces: tuple[Path, Path]) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    page = printed("trace", "diff", *traces, "--format", "html")
    assert "the learning rate is 0.25 in B, and 0.5 in A." in page
    assert 'data-figure="s1-steps"' in page
    assert 'data-figure="s1-layers"' in page
    assert "<li>update, step 0: 0.5</li>" in page


def test_show_lists_settings_steps_and_weights(traces: tuple[Path, Path]) -> None:
    text = printed("trace", "show", traces[0])
    assert "learning_rate 0.5" in text
    assert "weight 3x4" in text
    assert json.loads(printed("trace", "show", traces[0], "--format", "json"))["weights"] == {"weight": [3, 4]}


def test_bad_input_is_refused(traces: tuple[Path, Path], tmp_path: Path) -> None:
    assert "cannot read the trace" in refused("trace", "diff", traces[0], tmp_path / "missing")
    assert "unknown model" in refused("trace", "diff", *traces, "--model", "nonet")
    assert "--map" in refused("trace", "diff", *traces, "--map", tmp_path / "missing.toml")
    assert "the weights of" in refused("trace", "diff", *traces, "--model", "lenet")
