"""`polybench explain` and `compare --explain`, with the fake engine in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import polybench
from polybench.cli import app
from polybench.commands.explain import explain_measured
from polybench.core.document.layers import layers_from_json
from polybench.core.errors import BadInput, CellFailed
from polybench.data import synthetic
from polybench.engines.fake.engine import STEP_SECONDS
from polybench.measuring.progress import Silent
from tests import small
from tests.commands.test_live import on_screen
from tests.factories import measured, study

FAST = ["--data", "synthetic", "--processes", "1", "--rounds", "2", "--steps", "5", "--batch-size", "16"]
FAST += ["--quiet"]
ENGINES = ["--engines", "fake,fake+uneven"]


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, BadInput)
    assert error.exit_code == 2
    return str(error)


def test_a_planted_slow_layer_is_named_first_with_its_number(own_folders: Path) -> None:
    run("compare", *ENGINES, *FAST)
    before: dict[str, Any] = json.loads(run("explain", "last", "--format", "json"))
    missing = {one["figure"]: one["command"] for one in before["missing"]}
    assert missing["layers"].startswith("polybench layers --engines fake,fake+uneven --data synthetic")
    run(*missing["layers"].split()[1:], "--quiet")

    document = json.loads(run("explain", "last", "--format", "json"))
    assert document["schema"] == "polybench.explanation/1"
    (pair,) = document["pairs"]
    most = next(one for one in pair["sentences"] if "of it is" in one["text"])
    assert most["text"].startswith("Most of it is dense3, weight gradient: ")
    assert most["seconds"] == pytest.approx(STEP_SECONDS, rel=0.2)
    account = pair["accounts"][0]
    entries = sum(entry["seconds"] for entry in account["entries"])
    residue = sum(entry["seconds"] for entry in account["residue"])
    assert entries + residue == pytest.approx(pair["seconds"])
    assert entries == pytest.approx(pair["seconds"], rel=0.15)
    assert "layers" not in {one["figure"] for one in document["missing"]}

    text = run("explain", "last")
    assert "dense3, weight gradient" in text
    assert str(polybench.explain("last")) == text
    assert polybench.explain("last")._repr_markdown_() == run("explain", "last", "--format", "markdown")
    assert json.loads(polybench.explain("last").to_json()) == document
    against = run("explain", "last", "--against", "fake+uneven/cpu")
    assert "fake/cpu against fake+uneven/cpu" in against
    (layers,) = (own_folders / "results" / "layers").glob("*.json")
    assert "are times of layers, not a study" in refused("explain", layers.stem)
    assert "schema is 'polybench.layers/1', this version reads 'polybench.study/1'" in refused(
        "explain", str(layers)
    )


def test_compare_measures_the_layers_that_explain_it(own_folders: Path) -> None:
    engines = ("--engines", "fake,fake+uneven,fake+crash")
    text = run("compare", *engines, *FAST, "--explain", code=1)
    assert "parity" in text
    assert "- fake+crash/cpu: failed: the worker was killed by SIGSEGV" in text
    assert "fake+uneven/cpu against fake/cpu" in text
    assert "Most of it is dense3, weight gradient: " in text
    (layers,) = (own_folders / "results" / "layers").glob("*.json")

    printed = json.loads(run("compare", *ENGINES, *FAST, "--explain", "--format", "json"))
    assert [layers] == list(layers.parent.iterdir())  # those that were saved belong to it
    assert printed["schema"] == "polybench.study/1"
    said = {one["text"]: one for one in printed["explanation"]}
    most = next(one for text, one in said.items() if text.startswith("Most of it is dense3"))
    assert most["figure"] == f"layers {layers.stem}: dense3, weight gradient"
    assert json.loads(run("show", "last", "--format", "json"))["explanation"] == printed["explanation"]


def test_the_layers_of_an_anonymous_study_are_anonymous_and_belong_to_it(
    own_folders: Path, tmp_path: Path
) -> None:
    # Where the data lies is asked for, and told to nobody.
    data = str(small.cifar_folder(tmp_path, 300))
    text = run("compare", *ENGINES, *FAST, "--data", data, "--explain", "--anonymous")
    assert "Most of it is dense3, weight gradient: " in text
    (layers,) = (own_folders / "results" / "layers").glob("*.json")
    assert layers_from_json(layers.read_bytes()).host.hostname == "<host>"
    assert socket.gethostname() not in layers.read_text()
    assert str(tmp_path) not in layers.read_text()
    assert "Most of it is dense3, weight gradient: " in run("explain", "last")


@pytest.mark.parametrize(
    ("accident", "code"), [(CellFailed("the reference was killed"), 1), (KeyboardInterrupt(), 130)]
)
def test_layers_that_cannot_be_measured_do_not_cost_the_study(
    accident: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_layers(*_: Any, **__: Any) -> None:
        raise accident

    monkeypatch.setattr("polybench.measuring.layers.run_layers", run_layers)
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    explained = explain_measured(document, None, Silent(), [])
    assert explained.code == code
    assert explained.document is not None
    assert document.explanation[0].text.startswith("tf/cpu takes 10.0 ms")


def test_one_row_has_nothing_to_explain() -> None:
    text = run("compare", "--engines", "fake", *FAST, "--explain")
    assert "fake/cpu against" not in text
    assert "has one row with times, fake/cpu, and a difference needs two" in refused("explain", "last")


def test_on_a_terminal_its_own_warnings_stay() -> None:
    above, below = pty.openpty()
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "fake", *FAST[:-1], "--explain"]
    with subprocess.Popen(command, stdout=below, stderr=below, stdin=below) as program:
        os.close(below)
        written = ""
        with contextlib.suppress(OSError):  # its end, as Linux tells it
            while part := os.read(above, 1 << 16):
                written += part.decode(errors="replace")
        os.close(above)
    assert program.returncode == 0
    assert any(line.startswith("warning: nothing to explain: ") for line in on_screen(written))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "nowhere"], "no study 'nowhere'"),
        (["explain", "last", "--format", "csv"], "unknown format 'csv'"),
        (["compare", "--engines", "fake", "--explain", "--format", "csv"], "--explain is words"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)
