"""Notes below tables."""

from __future__ import annotations

import pytest

from polybench.render import sweep
from polybench.render.tables import format_notes
from tests.figures.documents import full_sweep


def test_notes_are_a_list_in_markdown_and_lines_otherwise() -> None:
    notes = ["one " * 60, "two\nlines"]
    assert format_notes(notes, markdown=True).splitlines() == [f"- {notes[0].strip()}", "- two lines"]
    *first, last = format_notes(notes, markdown=False).splitlines()
    assert all(len(line) <= 100 for line in first)
    assert last == "two lines"


@pytest.mark.parametrize("format", ["table", "markdown"])
def test_sweep_title_and_notes_are_separate_blocks(format: str) -> None:
    document = full_sweep()
    document.title = "Mine"
    header, _, *rest = sweep.render(document, format).split("\n\n")
    assert header.splitlines()[0] == ("Mine  " if format == "markdown" else "Mine")
    marked = [line.startswith("- ") for block in rest for line in block.splitlines() if "speedup: " in line]
    assert marked == [format == "markdown"]
