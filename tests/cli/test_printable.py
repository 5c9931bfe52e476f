"""Control characters in names, titles and reasons are escaped."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from polybench.cli.live import LineProgress, LiveTable
from polybench.schema.printable import printable

CONTROLS = {"\x1b", "\x9b", "\x07", "\x08", "\r", "\u202e"}
MALICIOUS = "\x1b]52;c;cm0gLXJm\x07 \x9b2J\u202e\r\b"


@given(st.text())
def test_control_characters_are_escaped(text: str) -> None:
    found = printable(text)
    assert not [c for c in found if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    found.encode("utf-8")  # raises an error for an unencodable character
    assert printable(found) == found


def test_what_changes_the_direction_of_a_text_is_escaped() -> None:
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
    invisible = {"Cf", "Cc"}
    characters = [chr(code) for code in range(0x80, 0x10000)]
    changing = [c for c in characters if unicodedata.bidirectional(c) in marks and unicodedata.category(c) in invisible]
    assert "\u2066" in changing
    assert [c for c in changing if printable(c) == c] == []


def test_harmless_characters_are_unchanged() -> None:
    assert printable("±5 %, naïve\n\t日本") == "±5 %, naïve\n\t日本"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_has_the_same_value(text: str) -> None:
    assert json.loads(printable(msgspec.json.encode([text]).decode())) == [text]


def test_a_malicious_name_is_escaped_in_the_error() -> None:
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "fake", "--data", MALICIOUS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "\\x1b]52" in done.stderr
    assert not set(done.stderr) & CONTROLS


@pytest.mark.parametrize("terminal", [False, True])
def test_malicious_stages_and_warnings_are_escaped(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, color_system=None, width=200)
    with Live(console=console, auto_refresh=False) as live:
        for progress in (LineProgress(console, quiet=False, repeats_warnings=False), LiveTable(live)):
            progress.on_stage(MALICIOUS)
            progress.on_warning(MALICIOUS)
    assert "\\x1b]52" in out.getvalue()
    assert MALICIOUS[:5] not in out.getvalue()
    assert not set(out.getvalue()) & (CONTROLS - {"\x1b", "\r"})  # rich writes its own on a terminal
