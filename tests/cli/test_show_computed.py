"""`show` computes a report again: with another baseline or tolerance, and of the undamaged part of a log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from polybench.log import read_outline
from tests.commands import printed, printed_json, refused
from tests.golden.logs import FOLDER


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a recorded log in the results folder, whose baseline is tf/cpu."""
    monkeypatch.setenv("POLYBENCH_RESULTS", str(tmp_path))
    path = tmp_path / f"{read_outline(FOLDER / 'bursts.jsonl').header.id}.jsonl"
    shutil.copy(FOLDER / "bursts.jsonl", path)
    return path


def settings(*options: str) -> tuple[str, float]:
    document = printed_json("show", "last", *options)
    return document["settings"]["baseline"], document["settings"]["tolerance"]


@pytest.mark.usefixtures("log")
def test_another_baseline_and_tolerance_are_used_if_they_are_given() -> None:
    assert settings() == ("tf/cpu", 0.01)
    assert settings("--baseline", "torch/cpu") == ("torch/cpu", 0.01)
    assert settings("--tolerance", "25%") == ("tf/cpu", 0.25)
    assert "speed vs. torch" in printed("show", "last", "--baseline", "torch/cpu")
    assert "speed vs. tf" in printed("show", "last")
    assert "did you mean 'torch/cpu'" in refused("show", "last", "--baseline", "torhc/cpu")


def test_the_part_of_a_log_before_its_damage_is_shown(log: Path) -> None:
    whole = printed_json("show", "last")
    log.write_bytes(log.read_bytes() + b"damaged\n")
    assert "are usable: `polybench show ID --salvage`" in refused("show", log.stem)
    assert printed_json("show", log.stem, "--salvage") == whole


def test_a_report_is_not_computed_again(log: Path) -> None:
    report = log.with_name("report.json")
    report.write_text(printed("show", "last", "--format", "json"))
    for options in ([], ["--baseline", "torch/cpu"]):
        assert "is a report: give the ID of its study" in refused("show", report, *options)
    assert settings() == ("tf/cpu", 0.01)
