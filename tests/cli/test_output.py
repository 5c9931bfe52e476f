"""Exit codes of documents, and result files."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.cli.output import exit_code
from polybench.schema.parity import ParityCheck
from polybench.schema.result import Result
from polybench.storage.store import Store
from tests.commands import refused
from tests.factories import WORKLOAD, measured, study


def absent(status: str) -> Result:
    return Result(
        configuration="x/cpu", engine="x", variant=None, device="cpu", workload=WORKLOAD, status=status  # type: ignore[arg-type]
    )  # fmt: skip


def different() -> Result:
    return measured("tf/cpu", 0.01, parity=ParityCheck("fail", "off"))


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
    ids=["ok", "unavailable", "failed", "different", "nothing measured", "only failures", "interrupted"],
)
def test_exit_codes(results: list[Result], code: int) -> None:
    assert exit_code(study(*results)) == code


def test_parity_only_needs_a_passed_check() -> None:
    assert exit_code(study(absent("ok")), parity_only=True) == 4
    passed = absent("ok")
    passed.parity = ParityCheck("pass")
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
        ["history", "--dismiss", "x"],
    ],
    ids=" ".join,
)
def test_a_failed_command_leaves_no_file(arguments: list[str], own_folders: Path) -> None:
    """The study `last` has one row, so it cannot be explained or merged with itself."""
    Store(own_folders / "results").save(study(measured("torch/cpu", 0.01)))
    output = own_folders / "x.html"
    refused(*arguments, "--output", output)
    assert not output.exists()
    output.write_text("as it was")
    refused(*arguments, "--output", output)
    assert output.read_text() == "as it was"


@pytest.mark.parametrize("command", [["report", "last"], ["diff", "last", "last"], ["show", "last"], ["history"]])
def test_an_output_that_cannot_be_written_is_bad_input(command: list[str], own_folders: Path) -> None:
    Store(own_folders / "results").save(study(measured("torch/cpu", 0.01)))
    assert "cannot write --output" in refused(*command, "--output", own_folders / "no" / "x.html")
