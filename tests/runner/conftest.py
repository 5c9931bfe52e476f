"""A small data set for all studies of these tests."""

from __future__ import annotations

import pytest

from polybench.data import synthetic
from tests.runner.studies import IMAGES


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    for split, images in IMAGES.items():
        monkeypatch.setitem(synthetic.IMAGES, split, images)
