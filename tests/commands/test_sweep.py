"""`polybench sweep` and `overhead`, with the fake engine in real processes."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data import synthetic
from polybench.engines.fake.engine import FIXED_SECONDS, SECONDS_PER_IMAGE

FAST = ["--data", "synthetic", "--processes", "2", "--rounds", "2", "--steps", "4", "--no-save", "-q"]


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, *FAST])
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_fixed_cost_that_was_planted_is_found() -> None:
    text = run("overhead", "--engines", "fake+line", "--batch-size", "1,16,128", "--format", "json")
    document: dict[str, Any] = json.loads(text)
    assert document["schema"] == "polybench.overhead/1"
    (engine,) = document["engines"]
    assert engine["fixed_seconds"] == pytest.approx(FIXED_SECONDS, rel=0.05)
    assert engine["seconds_per_sample"] == pytest.approx(SECONDS_PER_IMAGE, rel=0.25)
    assert [point["batch_size"] for point in engine["points"]] == [1, 16, 128]
    assert (engine["status"], engine["reason"]) == ("ok", None)  # though its identity was not checked


def test_a_sweep_finds_what_batch_size_brings() -> None:
    text = run("sweep", "--engines", "fake+line,fake", "--batch-size", "1,128", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["batch_size"], row["cell"]) for row in rows] == [
        ("1", "fake+line/cpu"),
        ("1", "fake/cpu"),
        ("128", "fake+line/cpu"),
        ("128", "fake/cpu"),
    ]
    step = FIXED_SECONDS + 128 * SECONDS_PER_IMAGE
    assert float(rows[2]["speedup"]) == pytest.approx(
        128 * (FIXED_SECONDS + SECONDS_PER_IMAGE) / step, rel=0.2
    )
    assert float(rows[3]["speedup"]) == pytest.approx(128, rel=0.2)
    assert float(rows[2]["low"]) < float(rows[2]["speedup"]) < float(rows[2]["high"])


def test_more_threads_than_cores_are_told() -> None:
    text = run("sweep", "--engines", "fake", "--threads", "1,512")
    assert "fake/cpu *" in text
    assert "* more threads than usable cores" in text
    assert "efficiency" in text
    assert "most images a second at threads" in text


def test_too_many_threads_are_marked_whatever_is_varied() -> None:
    text = run("sweep", "--engines", "fake", "--threads", "512", "--batch-size", "8,16", "--format", "csv")
    assert [row["oversubscribed"] for row in csv.DictReader(io.StringIO(text))] == ["1", "1"]
    assert [row["batch_size"] for row in csv.DictReader(io.StringIO(text))] == ["8", "16"]


def test_a_cell_that_fails_has_its_reason_and_the_others_their_numbers() -> None:
    text = run("sweep", "--engines", "fake,fake+crash", "--batch-size", "8,16", code=1)
    assert "fake+crash/cpu: failed: the worker was killed by SIGSEGV" in text
    assert "fake/cpu: most images a second at batch size 16" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--engines", "fake"], "nothing is varied"),
        (["sweep", "--engines", "fake", "--threads", "1,two"], "--threads 1,two: write whole numbers"),
        (["overhead", "--engines", "fake", "--batch-size", "8"], "a line needs two batch sizes"),
        (["sweep", "--engines", "fake", "--threads", "1,2", "--format", "latex"], "format"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*arguments, *FAST])
    assert message in str(result.exception)
    assert getattr(result.exception, "exit_code", None) == 2
