"""The matrix of checks, and its table in the docs."""

from __future__ import annotations

import pytest

from polybench.engines import ENGINES
from polybench.networks.optimizers import Optimizer
from tests import engine_matrix
from tests.matrix_table import matrix as table


def test_checks_name_engines_that_train_and_their_variants() -> None:
    assert "torch" in engine_matrix.TESTED
    assert not {"reference", "fake"} & set(engine_matrix.TESTED)
    for check in engine_matrix.checks():
        engine, *variants = check.configuration.split("+")
        assert engine in engine_matrix.TESTED
        assert set(variants) <= set(ENGINES[engine].variants)


def test_every_cpu_variant_is_checked() -> None:
    assert {"tf", "tf+xla", "torch+compile", "torch+channels_last+compile"} <= set(engine_matrix.LENET_CELLS)
    assert "torch+cudagraph" not in engine_matrix.LENET_CELLS


def test_the_table_shows_how_an_engine_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    momentum = Optimizer("momentum")
    configurations = ("torch+b", "torch", "torch+a+b", "torch+a", "tf+a")
    monkeypatch.setattr(engine_matrix, "TESTED", ("torch", "tf", "flux"))
    monkeypatch.setattr(
        engine_matrix,
        "checks",
        lambda: (engine_matrix.Check("lenet", momentum, configuration) for configuration in configurations),
    )
    row = next(line for line in table().splitlines() if line.startswith("| `lenet` | `momentum` |"))
    assert row == "| `lenet` | `momentum` | ✓, `+a`, `+a+b`, `+b` | `+a` | - |"


def test_an_untested_network_has_an_empty_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| `dlframeworks-cnn` | `momentum` | ✓ |" in table()
    monkeypatch.setattr(engine_matrix, "NETWORK_CASES", ())
    assert "| `dlframeworks-cnn` | `momentum` | - |" in table()
