"""Studies of the forward pass with the fake engine: what is measured, saved and printed, and what is refused."""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec
import pytest

from polybench.analysis.diff import diff
from polybench.cli.options import make_study
from polybench.engines import ENGINES
from polybench.engines.fake.engine import FORWARD_FRACTION, STEP_SECONDS
from polybench.errors import BadInput
from polybench.experiments.layers import run_layers
from polybench.html_report.study_section import StudySection, build_view
from polybench.networks.lenet import LENET
from polybench.planning.plan import resolve
from polybench.planning.study_file import parse
from polybench.planning.suggested_commands import command_line, for_layers, measured_study
from polybench.render import render
from polybench.render.verdicts import summary_sentences
from polybench.results.comparisons import compare_with_peak
from polybench.results.summaries import summarize
from polybench.results.sweep import build_overhead_document, build_sweep_document
from polybench.runner.progress import NullProgress
from polybench.schema.measurements import PeakMeasurement
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument, from_json, to_json
from tests.factories import measured, study
from tests.runner.studies import FAST, run


@functools.cache
def measured_forward_pass() -> StudyDocument:
    return run("fake", "fake+slow", inference=True)


def test_a_study_measures_and_saves_the_forward_pass() -> None:
    document = from_json(to_json(measured_forward_pass()))
    result = document.result("fake/cpu")
    assert result.step_time is not None
    assert result.step_time.mean == pytest.approx(FORWARD_FRACTION * STEP_SECONDS, rel=0.05)
    assert result.allocations.host is not None
    assert (document.settings.pass_, result.workload.pass_, result.losses) == ("forward", "forward", [])
    assert document.settings.optimizer.name == "sgd"
    assert msgspec.json.decode(to_json(document))["settings"]["pass"] == "forward"
    assert measured_study(document).inference is True


def test_titles_and_sentences_name_the_forward_pass() -> None:
    document = measured_forward_pass()
    assert "lenet, forward pass on synthetic images" in render(document, "table")
    view = build_view(StudySection(document), 0)
    assert view["title"].startswith("lenet, forward pass on synthetic")
    assert view["parity_kinds"] == ("logits",)
    sweep = build_sweep_document({"batch_size": [8, 16]}, [({"batch_size": 8}, document)], [], 2)
    overhead = build_overhead_document({8: document, 16: document}, [])
    for text in (render(sweep, "table"), render(overhead, "table")):
        assert text.startswith("lenet, forward pass")
    compared = study(measured("torch/cpu", 0.0165), measured("tf/cpu", 0.00855))
    for result in compared.results:
        result.workload = msgspec.structs.replace(result.workload, pass_="forward")
    (sentence,) = summary_sentences(compared)
    assert "times as fast as torch in the forward pass" in sentence


def test_a_saved_study_is_listed_with_its_pass_and_not_compared_with_training() -> None:
    document = measured_forward_pass()
    summary = summarize(document)
    assert (summary.model, summary.pass_) == ("lenet", "forward")
    trained = run("fake", "fake+slow")
    rows = diff(trained, document).rows
    assert {row.verdict for row in rows} == {"not comparable"}
    assert rows[0].reason == "different pass: training in A, forward in B"


def test_an_engine_without_the_forward_pass_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "older", msgspec.structs.replace(ENGINES["fake"], forward_pass=False))
    result = run("older", inference=True).results[0]
    assert result.status == "unavailable"
    assert result.reason == "this engine does not have the forward pass yet"
    assert str(result.hint).startswith("use an engine that has it: ")


@pytest.mark.parametrize(
    "option",
    [
        {"epochs": 1}, {"accuracy": True}, {"target_accuracy": 0.5}, {"optimizer": "adam"}, {"learning_rate": 0.1},
        {"momentum": 0.5}, {"weight_decay": 0.1}, {"lr_schedule": ((5, 0.1),)}, {"replicas": 2},
    ],
)  # fmt: skip
def test_options_of_training_are_refused(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(BadInput, match=f"--inference .*: omit --{name.replace('_', '-')}$"):
        Study(engines=("fake",), inference=True, **option)


@pytest.mark.parametrize("engine", ["torch+foreach", "tf+keras_fit", "flux+train", "flux+enzyme"])
def test_variants_that_change_only_training_are_refused(engine: str) -> None:
    with pytest.raises(BadInput, match=rf"{re.escape(engine)} changes training only: omit \+"):
        resolve(Study(engines=(engine,), inference=True))


def test_study_files_and_options_name_inference() -> None:
    given = make_study(engines=("fake",), inference=True)
    assert parse('engines = ["fake"]\ninference = true', "study.toml") == given
    assert command_line("compare", given) == "polybench compare --engines fake --inference"
    assert command_line("layers", for_layers(given, measured_forward_pass().results[:1]) or Study()).endswith(
        "--inference"
    )


def test_layers_of_the_forward_pass_have_only_forward_operations() -> None:
    document = run_layers(Study(engines=("fake",), inference=True, **FAST), NullProgress()).document
    rows = document.configurations[0].rows
    assert len(rows) > 3
    assert {row.operation for row in rows} == {"forward"}


def test_the_share_of_the_peak_counts_only_the_forward_pass() -> None:
    peak = PeakMeasurement(
        device="cpu", precision="fp32", threads=2, kind="gemm", value=1e12, unit="FLOP/s", engine="torch",
        shape="512x512x512", ci95=None, drift=None, cpu_contention=0.0, measured_at="2026-01-01T00:00:00",
    )  # fmt: skip
    shares = []
    for pass_ in ("training", "forward"):
        result = measured("torch/cpu", 0.01)
        result.workload = msgspec.structs.replace(result.workload, pass_=pass_)
        found = compare_with_peak(result, LENET, [peak])
        assert found is not None
        shares.append(found.fraction)
    assert shares[1] == pytest.approx(2 * LENET.forward_macs() * 128 / 0.01 / 1e12, rel=0.01)
    assert shares[0] == pytest.approx(shares[1] * LENET.training_macs() / LENET.forward_macs())
