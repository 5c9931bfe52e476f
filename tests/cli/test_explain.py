"""`polybench explain` and `compare --explain`, with the engine `fake` in real processes."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import polybench
from polybench.cli.explain import explain_study
from polybench.engines.fake.engine import STEP_SECONDS
from polybench.errors import ConfigurationFailed
from polybench.log import read_log
from polybench.results.layers import derive_layers
from polybench.runner.progress import NullProgress
from polybench.storage.store import Store
from tests import small_datasets
from tests.commands import FAST, printed, printed_json, refused
from tests.factories import measured, study
from tests.log_of import save_document

QUICK = (*FAST, "--processes", "2", "--quiet")
ENGINES = ["--engines", "fake,faulty+slow_last_layer"]


pytestmark = pytest.mark.usefixtures("small_data")


def test_the_baseline_of_an_explanation_can_be_chosen(own_folders: Path) -> None:
    save_document(Store(own_folders / "results"), study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01)))
    for options, baseline in (((), "torch/cpu"), (("--baseline", "tf/cpu"), "tf/cpu")):
        (pair,) = printed_json("explain", "last", *options)["comparisons"]
        assert pair["baseline"] == baseline


def test_an_injected_slow_layer_is_named_first_with_its_time(own_folders: Path) -> None:
    printed("compare", *ENGINES, *QUICK)
    before: dict[str, Any] = printed_json("explain", "last")
    suggested = {one["evidence"]: one["command"] for one in before["suggested_measurements"]}
    assert suggested["layers"].startswith("polybench layers --engines fake,faulty+slow_last_layer --data synthetic")
    printed(*suggested["layers"].split()[1:], "--quiet")

    document = printed_json("explain", "last")
    assert document["schema"] == "polybench.explanation/2"
    (comparison,) = document["comparisons"]
    most = next(one for one in comparison["statements"] if "difference comes from" in one["text"])
    assert most["text"].startswith("Most of the difference comes from dense3, weight gradient: ")
    assert most["seconds"] == pytest.approx(STEP_SECONDS, rel=0.2)
    breakdown = comparison["breakdowns"][0]
    explained = sum(component["difference_seconds"] for component in breakdown["components"])
    unattributed = sum(component["difference_seconds"] for component in breakdown["unattributed"])
    whole = breakdown["seconds"] - breakdown["baseline_seconds"]
    assert explained + unattributed == pytest.approx(whole)
    assert explained == pytest.approx(whole, rel=0.15)
    assert "layers" not in {one["evidence"] for one in document["suggested_measurements"]}

    text = printed("explain", "last")
    assert "the weight gradient of dense3" in text
    assert "polybench compare" not in text
    assert "polybench compare" in printed("explain", "last", "--suggest")
    assert str(polybench.explain("last")) == text
    assert polybench.explain("last")._repr_markdown_() == printed("explain", "last", "--format", "markdown")
    assert json.loads(polybench.explain("last").to_json()) == document
    reversed = printed("explain", "last", "--baseline", "faulty+slow_last_layer/cpu")
    assert "faulty+slow_last_layer weight gradient: " in reversed
    (layers,) = (own_folders / "results").glob("layers-*.jsonl")
    assert "is a layers document, not a study" in refused("explain", layers.stem)
    assert "is a layers document, not a study" in refused("explain", str(layers))


def test_compare_measures_the_layers_of_its_explanation(own_folders: Path) -> None:
    engines = ("--engines", "fake,faulty+slow_last_layer,faulty+crash")
    text = printed("compare", *engines, *QUICK, "--explain", code=1)
    assert "not checked" in text
    assert "the worker was killed by SIGSEGV" in text
    assert "faulty+slow_last_layer - fake: " in text
    assert "the weight gradient of dense3" in text
    assert "polybench explain last --suggest" in text
    (layers,) = (own_folders / "results").glob("layers-*.jsonl")

    document = printed_json("compare", *ENGINES, *QUICK, "--explain")
    assert [layers] == list(layers.parent.glob("layers-*"))  # the saved layers apply
    assert document["schema"] == "polybench.study/3"
    statements = {one["text"]: one for one in document["explanation"]}
    most = next(one for text, one in statements.items() if text.startswith("Most of the difference comes from dense3"))
    assert most["evidence"] == f"{layers.stem}: dense3, weight gradient"
    assert printed_json("show", "last")["explanation"] == []  # nothing that is computed is saved


def test_the_layers_of_an_anonymous_study_are_anonymous_and_apply_to_it(own_folders: Path, tmp_path: Path) -> None:
    # The data's path is an option of the study, but must not be saved.
    data = str(small_datasets.cifar_folder(tmp_path, 300))
    text = printed("compare", *ENGINES, *QUICK, "--data", data, "--explain", "--anonymous")
    assert "the weight gradient of dense3" in text
    (layers,) = (own_folders / "results").glob("layers-*.jsonl")
    assert derive_layers(read_log(layers)).host.hostname == "<host>"
    assert socket.gethostname() not in layers.read_text()
    assert str(tmp_path) not in layers.read_text()
    assert "the weight gradient of dense3" in printed("explain", "last")


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigurationFailed("the reference was killed"), 1), (KeyboardInterrupt(), 130)]
)
def test_a_failure_in_the_layers_keeps_the_study(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_layers(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("polybench.experiments.layers.run_layers", run_layers)
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    explained = explain_study(document, None, NullProgress(), [])
    assert explained.code == code
    assert explained.document is not None
    assert document.explanation[0].text.startswith("tf/cpu takes 10.0 ms")


def test_a_single_row_has_nothing_to_explain() -> None:
    text = printed("compare", "--engines", "fake", *QUICK, "--explain")
    assert "Where a training step" not in text
    assert "has only one measured configuration, fake/cpu" in refused("explain", "last")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "nowhere"], "no study 'nowhere'"),
        (["explain", "last", "--format", "csv"], "unknown format 'csv'"),
        (["compare", "--engines", "fake", "--explain", "--format", "csv"], "--explain with --format csv"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)
