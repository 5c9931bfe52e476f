"""In which order and where files of tests run (`tests/conftest.py`)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import LONGEST, SHARE_ENGINES

TESTS = Path(__file__).parent
ASKS = re.compile(r"\bin_process_of\(|\brun_check: |\bprocesses: Callable|\bdrive: ")
"""For a process of an engine that others may have started."""


def test_all_files_that_are_named_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def test_who_asks_for_a_shared_process_is_named() -> None:
    asking = {path for path in (TESTS / "engines").rglob("test_*.py") if ASKS.search(path.read_text("utf-8"))}
    assert {str(path.relative_to(TESTS)) for path in asking} == set(SHARE_ENGINES)
