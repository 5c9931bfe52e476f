"""What stands below tables that are not a study's."""

from __future__ import annotations

import pytest

from polybench.export import sweep
from polybench.export.records import below
from tests.plots.documents import full_sweep


def test_sentences_are_a_list_in_markdown_and_lines_for_people() -> None:
    notes = ["one " * 60, "two\nlines"]
    assert below(notes, markdown=True).splitlines() == [f"- {notes[0].strip()}", "- two lines"]
    *first, last = below(notes, markdown=False).splitlines()
    assert all(len(line) <= 100 for line in first)
    assert last == "two lines"


@pytest.mark.parametrize("format", ["table", "markdown"])
def test_a_sweep_has_its_title_and_sentences_apart(format: str) -> None:
    found = full_sweep()
    found.title = "Mine"
    heading, _, *rest = sweep.render(found, format).split("\n\n")
    assert heading.splitlines()[0] == ("Mine  " if format == "markdown" else "Mine")
    marked = [line.startswith("- ") for block in rest for line in block.splitlines() if "speedup: " in line]
    assert marked == [format == "markdown"]
