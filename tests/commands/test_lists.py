"""The commands that list what may be asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.engines import ALLOCATORS, ENGINES
from polybench.metrics import METRICS
from polybench.models import MODELS
from polybench.planning.plan import resolve


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(command: str) -> list[dict[str, Any]]:
    found = json.loads(printed(command, "--format", "json"))
    assert isinstance(found, list)
    return found


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith((" ", "-"))]


def test_each_name_of_an_engine_may_be_asked_for() -> None:
    found = rows("engines")
    assert [row["engine"] for row in found] == list(ENGINES)
    assert all(row["summary"] for row in found)
    names = [name for name in first_words(printed("engines")) if name.partition("+")[0] in ENGINES]
    assert "torch+compile" in names
    assert len(names) == len(found) + sum(len(row.variants) for row in ENGINES.values())
    assert all(ALLOCATORS.keys() <= row["variants"].keys() for row in found)
    assert "ENGINE+jemalloc" in first_words(printed("engines"))
    assert len(resolve(Study(engines=tuple(names), devices=("cpu",))).cells) == len(names)


def test_an_engine_says_what_installs_it() -> None:
    by_name = {row["engine"]: row["install"] for row in rows("engines")}
    assert by_name["tf"] == "pip install 'polybench[tf]'"
    assert by_name["reference"] is None
    assert "pip install 'polybench[flux]'" in printed("engines")


def test_models_have_their_counts_and_declared_training() -> None:
    found = {row["model"]: row for row in rows("models")}
    assert list(found) == list(MODELS)
    lenet = found["lenet"]
    assert lenet["parameters"] == 39_558
    assert lenet["training_multiply_adds"] * lenet["batch_size"] == pytest.approx(377e6, rel=0.01)
    assert lenet["optimizer"]["name"] == "momentum"
    text = printed("models")
    assert "39,558" in text
    assert "catdog-N has N convolutions, 2 to 1000" in text


def test_columns_say_which_direction_is_better() -> None:
    found = {row["column"]: row for row in rows("columns")}
    assert list(found) == list(METRICS)
    assert (found["step_time"]["unit"], found["step_time"]["better"]) == ("s", "lower")
    assert (found["speedup"]["better"], found["parity"]["better"]) == ("higher", None)
    assert "startup" in found["cold_start"]["groups"]
    lines = {words[0]: words for words in map(str.split, printed("columns").splitlines())}
    assert lines["throughput"] == ["throughput", "images/s", "higher", "times,", "pipeline"]


@pytest.mark.parametrize("command", ["engines", "models", "columns", "list", "doctor"])
def test_another_format_is_bad_input(command: str) -> None:
    error = CliRunner().invoke(app, [command, "--format", "csv"]).exception
    assert isinstance(error, BadInput)
    assert "formats are: json, table" in str(error)
