"""Order and distribution of test files (`tests/conftest.py`)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import LONGEST, SHARE_ENGINES

TESTS = Path(__file__).parent
REQUESTS = re.compile(r"\bin_process_of\(|\brun_check: |\bprocesses: Callable|\brun_lenet: ")
"""Pattern of a request for a shared engine process."""


def test_all_listed_files_exist() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def test_files_that_request_a_shared_process_are_listed() -> None:
    asking = {path for path in (TESTS / "engines").rglob("test_*.py") if REQUESTS.search(path.read_text("utf-8"))}
    assert {str(path.relative_to(TESTS)) for path in asking} == set(SHARE_ENGINES)
