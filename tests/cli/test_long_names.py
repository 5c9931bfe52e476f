"""File names that are too long for the file system, in every option that takes a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import refused

LONG = "x" * 5000
COMMANDS = [
    ["show", f"{LONG}.json"],
    ["run", LONG],
    ["run", f"folder/{LONG}"],
    ["plot", f"{LONG}.json", "-o", "figure.svg"],
    ["diff", f"{LONG}.json", "last"],
    ["export", "--weights", "--data", "synthetic", "--output", LONG],
    ["models", f"{LONG}.toml"],
    ["data", "verify", LONG],
    ["list", "--results", LONG],
    ["compare", "--data", LONG],
    ["compare", "--model", f"{LONG}.toml"],
    ["compare", "--engines", "torch@old", "--env", f"old={LONG}"],
    ["compare", "--engines", "torch@old", "--env", "old=~nosuchuser/venv"],
    ["export", "--train", "--output", LONG],
    ["export", "--framework", "torch", "--output", f"{LONG}.py"],
    ["compare", "--engines", "fake", "--data", "synthetic", "--output", LONG],
    ["compare", "--engines", "fake", "--data", "synthetic", "--results", LONG],
    ["layers", "--engines", "fake", "--data", "synthetic", "--export", LONG],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:40])
def test_a_file_name_that_is_too_long_is_bad_input(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    refused(*command)


def test_an_unwritable_export_folder_is_rejected_before_layers_are_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = ("layers", "--engines", "fake", "--data", "synthetic", "--export", tmp_path / "file" / "folder")
    assert "choose another folder for --export" in refused(*command)
