"""Exit codes, from documents; files of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.commands.outcome import exit_code
from polybench.core.document.identity import Parity
from polybench.core.document.result import Result
from polybench.core.errors import BadInput
from polybench.report.saved_studies import Store
from tests.factories import WORKLOAD, measured, study


def absent(status: str) -> Result:
    return Result(
        cell="x/cpu", engine="x", variant=None, device="cpu", workload=WORKLOAD, status=status  # type: ignore[arg-type]
    )  # fmt: skip


def different() -> Result:
    return measured("tf/cpu", 0.01, parity=Parity("fail", "off"))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([measured("torch/cpu", 0.01)], 0),
        ([measured("torch/cpu", 0.01), absent("unavailable")], 0),
        ([measured("torch/cpu", 0.01), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), different()], 1),
        ([absent("unavailable")], 4),
        ([absent("unavailable"), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), absent("failed"), absent("interrupted")], 130),
    ],
    ids=[
        "ok",
        "unavailable",
        "failed",
        "different",
        "nothing measured",
        "only failures",
        "interrupted",
    ],
)
def test_exit_codes(results: list[Result], code: int) -> None:
    assert exit_code(study(*results)) == code


def test_parity_alone_is_done_when_it_passed() -> None:
    assert exit_code(study(absent("ok")), parity_only=True) == 4
    passed = absent("ok")
    passed.parity = Parity("pass")
    assert exit_code(study(passed), parity_only=True) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "x"],
        ["diff", "x", "last"],
        ["diff", "last", "x"],
        ["merge", "last", "x"],
        ["merge", "last", "last"],
        ["show", "x"],
        ["explain", "x"],
        ["explain", "last"],
        ["plot", "x"],
        ["history", "--acknowledge", "x"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_shown_leaves_no_file(arguments: list[str], own_folders: Path) -> None:
    """`last` has one row, which nothing explains, and is no other study to be merged with."""
    Store(own_folders / "results").save(study(measured("torch/cpu", 0.01)))
    output = own_folders / "x.html"
    error = CliRunner().invoke(app, [*arguments, "--output", str(output)]).exception
    assert isinstance(error, BadInput)
    assert not output.exists()
    output.write_text("as it was")
    CliRunner().invoke(app, [*arguments, "--output", str(output)])
    assert output.read_text() == "as it was"


@pytest.mark.parametrize(
    "command", [["report", "last"], ["diff", "last", "last"], ["show", "last"], ["history"]]
)
def test_a_file_that_cannot_be_written_is_bad_input(command: list[str], own_folders: Path) -> None:
    Store(own_folders / "results").save(study(measured("torch/cpu", 0.01)))
    error = CliRunner().invoke(app, [*command, "--output", str(own_folders / "no" / "x.html")]).exception
    assert isinstance(error, BadInput)
    assert "cannot write --output" in str(error)
