"""The list of planted bugs (tests/planted) fits the code; `make planted` shows that tests notice each."""

from __future__ import annotations

import pytest

from tests.planted import ROOT, Bug, areas, bugs


@pytest.mark.parametrize("area", areas())
def test_every_planted_bug_still_applies(area: str) -> None:
    for bug in bugs(area):
        bug.planted((ROOT / bug.file).read_text("utf-8"))
        assert bug.new != bug.old
        assert (ROOT / bug.killed_by).is_file(), bug.killed_by
    kinds = [bug.kind for bug in bugs(area)]
    assert len({*kinds}) == len(kinds)


@pytest.mark.parametrize("text", ["nothing", "one one"])
def test_a_bug_that_no_longer_applies_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected its old text once in a\.py, found"):
        Bug("a bug", "a.py", "one", "two", "tests/test_a.py").planted(text)
