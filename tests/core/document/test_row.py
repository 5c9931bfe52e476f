"""What rows of all documents begin with."""

from __future__ import annotations

from polybench.core.document.row import Row, fields_of
from tests.factories import absent, measured


def test_a_row_tells_its_cell_apart_from_the_same_engine_elsewhere() -> None:
    row = Row(**fields_of(measured("torch+compile@old/cpu", 0.01)))
    assert (row.engine, row.variant, row.environment, row.device) == ("torch", "compile", "old", "cpu")
    assert Row(**fields_of(measured("torch/cpu", 0.01))).environment is None


def test_a_row_says_what_became_of_it() -> None:
    row = Row(**fields_of(absent("tf/cpu", "unavailable", "not installed", "pip install tensorflow")))
    assert (row.status, row.reason, row.remedy) == ("unavailable", "not installed", "pip install tensorflow")
