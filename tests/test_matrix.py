"""What is checked, and how the README says it."""

from __future__ import annotations

import pytest

from polybench.core.optimizers import Optimizer
from polybench.engines import ENGINES
from tests import matrix
from tests.matrix_table import matrix as table


def test_a_check_is_of_an_engine_that_trains_and_of_its_own_variants() -> None:
    assert "torch" in matrix.TESTED
    assert not {"reference", "fake"} & set(matrix.TESTED)
    for check in matrix.checks():
        engine, *variants = check.cell.split("+")
        assert engine in matrix.TESTED
        assert set(variants) <= set(ENGINES[engine].variants)


def test_every_variant_that_a_cpu_has_is_checked() -> None:
    assert {"tf", "tf+xla", "torch+compile", "torch+channels_last+compile"} <= set(matrix.LENET_CELLS)
    assert "torch+cudagraph" not in matrix.LENET_CELLS


def test_a_cell_says_how_an_engine_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    momentum = Optimizer("momentum")
    cells = ("torch+b", "torch", "torch+a+b", "torch+a", "tf+a")
    monkeypatch.setattr(matrix, "TESTED", ("torch", "tf", "flux"))
    monkeypatch.setattr(matrix, "checks", lambda: (matrix.Check("lenet", momentum, cell) for cell in cells))
    row = next(line for line in table().splitlines() if line.startswith("| `lenet` | `momentum` |"))
    assert row == "| `lenet` | `momentum` | ✓, `+a`, `+a+b`, `+b` | `+a` | - |"


def test_a_network_that_no_test_trains_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| `rosetta` | `momentum` | ✓ |" in table()
    monkeypatch.setattr(matrix, "NETWORK_CASES", ())
    assert "| `rosetta` | `momentum` | - |" in table()
