"""Costs of saved studies with other prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.analysis.prices import with_prices
from polybench.storage.store import Store
from tests.factories import measured, study


def test_a_given_price_replaces_that_of_a_saved_study(tmp_path: Path) -> None:
    saved = study(measured("torch/cpu", 0.01), measured("torch/cuda", 0.001))
    saved.settings.prices |= {"cpu": 9.0, "cuda": 2.0}
    (priced,) = with_prices([saved], {"cpu": 1.0}, Store(tmp_path))
    assert priced.settings.prices == {"cpu": 1.0, "cuda": 2.0}
    costs = [one.cost and one.cost.dollars_per_epoch for one in priced.results]
    assert costs == pytest.approx([390 * 0.01 / 3600, 390 * 0.001 / 3600 * 2])
