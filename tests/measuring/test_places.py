"""`polybench allocations` with engines that play scripts: what they are asked, what is told, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.places import AllocationsDocument
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.engines.fake.engine import PLACES
from polybench.measuring.places import find_places
from tests.measuring.test_study import Listener


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 400)


def look(*engines: str) -> AllocationsDocument:
    return find_places(Study(engines=engines, data="synthetic", devices=("cpu",), timeout=60.0), Listener())


def test_each_cell_tells_once_or_says_why_not(own_folders: Path) -> None:
    document = look("fake", "fake", "fake+uncountable", "fake+unavailable", "reference")
    told, repeat, failed, missing, silent = document.engines
    assert (told.source, told.covers, told.places) == (PLACES.source, PLACES.covers, PLACES.places)
    assert (told.bytes_per_step, told.calls_per_step, told.status) == (3 << 20, 12, "ok")
    assert (repeat.cell, repeat.places) == ("fake/cpu#2", [])
    assert (failed.status, failed.places) == ("failed", [])
    assert "the fake profiler does not start" in (failed.reason or "")
    assert (missing.status, missing.remedy) == ("unavailable", "ask for plain fake")
    assert (silent.status, silent.places) == ("unavailable", [])
    assert document.schema == "polybench.allocations/1"
    assert document.settings.model == "lenet"
    assert not (own_folders / "results").exists()


@pytest.mark.parametrize(
    ("engines", "code"),
    [("fake", 0), ("fake,fake+unavailable", 0), ("fake,fake+uncountable", 1), ("fake+unavailable", 4)],
)
def test_the_command_prints_one_document_and_ends_as_others_do(engines: str, code: int) -> None:
    result = CliRunner().invoke(
        app,
        ["allocations", "--engines", engines, "--data", "synthetic", "--format", "json", "--devices", "cpu"],
    )
    assert result.exit_code == code, result.output
    assert json.loads(result.stdout)["schema"] == "polybench.allocations/1"


def test_a_format_that_it_does_not_have_is_bad_input() -> None:
    result = CliRunner().invoke(app, ["allocations", "--engines", "fake", "--format", "latex"])
    assert "latex" in str(result.exception)
