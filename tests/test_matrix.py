"""The README's table of what is checked."""

from __future__ import annotations

import pytest

from polybench.engines import ENGINES
from tests import matrix


def test_the_readme_shows_what_the_tests_run() -> None:
    text = matrix.README.read_text("utf-8")
    assert matrix.with_table(text) == text, "write it anew: python -m tests.matrix"


def test_every_engine_that_trains_has_a_column_and_only_its_own_variants() -> None:
    trained = {name for name, row in ENGINES.items() if row.does_arithmetic} - {"reference"}
    assert trained == set(matrix.TESTED)
    for check in matrix.checks():
        engine, *variants = check.cell.split("+")
        assert engine in matrix.TESTED
        assert set(variants) <= set(ENGINES[engine].variants)


def test_a_cell_says_how_an_engine_is_checked() -> None:
    rows = [line.split(" | ") for line in matrix.table().splitlines()]
    momentum = next(row for row in rows if row[:2] == ["| `lenet`", "`momentum`"])
    assert momentum[2] == "✓, `+channels_last`, `+channels_last+compile`, `+compile`"


def test_a_network_that_no_test_trains_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| `rosetta` | `momentum` | ✓ | ✓ | ✓ |" in matrix.table()
    monkeypatch.setattr(matrix, "NETWORK_CASES", ())
    assert "| `rosetta` | `momentum` | - | - | - |" in matrix.table()
