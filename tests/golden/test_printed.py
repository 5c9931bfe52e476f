"""What is printed and drawn about documents of every kind is that of `printed.txt`, to the last character."""

from __future__ import annotations

import pytest

from tests.golden import printed

_UPDATE = "if on purpose, python -m tests.golden"


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    for package in ("jinja2", "plotly"):
        pytest.importorskip(package)
    return printed.split(printed.printed())


EXPECTED = printed.split(printed.FILE.read_text("utf-8"))


@pytest.mark.parametrize("part", EXPECTED)
def test_a_document_is_printed_as_before(part: str, found: dict[str, str]) -> None:
    assert found[part].splitlines() == EXPECTED[part].splitlines(), _UPDATE


def test_nothing_else_is_printed(found: dict[str, str]) -> None:
    assert [*found] == [*EXPECTED], _UPDATE
