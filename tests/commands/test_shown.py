"""What comes from elsewhere cannot speak to the terminal."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live
from typer.testing import CliRunner

from polybench.cli import app
from polybench.commands.live import Lines, LiveTable
from polybench.commands.terminal import shown
from polybench.report.saved_studies import Store
from tests.factories import measured, study

SENT = {"\x1b", "\x9b", "\x07", "\x08", "\r", "\u202e"}
HOSTILE = "\x1b]52;c;cm0gLXJm\x07 \x9b2J\u202e\r\b"


@given(st.text())
def test_nothing_but_lines_and_tabs_is_sent(text: str) -> None:
    found = shown(text)
    assert not [c for c in found if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    found.encode("utf-8")  # raises where something has no encoding
    assert shown(found) == found


def test_what_is_harmless_stays() -> None:
    assert shown("±5 %, naïve\n\t日本") == "±5 %, naïve\n\t日本"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_says_the_same(text: str) -> None:
    assert json.loads(shown(msgspec.json.encode([text]).decode())) == [text]


def test_a_hostile_name_is_shown_in_the_error() -> None:
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "fake", "--data", HOSTILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "\\x1b]52" in done.stderr
    assert not set(done.stderr) & SENT


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_stages_and_warnings_are_shown(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, color_system=None, width=200)
    with Live(console=console, auto_refresh=False) as live:
        for progress in (Lines(console, quiet=False), LiveTable(live)):
            progress.stage(HOSTILE)
            progress.warn(HOSTILE)
    assert "\\x1b]52" in out.getvalue()
    assert HOSTILE[:5] not in out.getvalue()
    assert not set(out.getvalue()) & (SENT - {"\x1b", "\r"})  # rich has its own on a terminal


@pytest.mark.parametrize("format", ["table", "markdown", "json", "csv", "latex"])
def test_a_hostile_title_and_reason_are_shown(tmp_path: Path, format: str) -> None:
    document = study(measured("fake/cpu", 0.01))
    document.title = HOSTILE
    document.warnings = [HOSTILE]
    document.results[0].reason = HOSTILE
    Store(tmp_path).save(document)
    result = CliRunner().invoke(app, ["show", "last", "--results", str(tmp_path), "--format", format])
    assert result.exit_code == 0, result.output
    assert not set(result.stdout) & SENT
