from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polybench.worker import numpy_peak
from polybench.worker.numpy_peak import product_seconds, triad_seconds


def test_the_triad_is_correct_for_any_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_peak, "_CHUNK_VALUES", 7)
    a, b, c = np.random.default_rng(0).random((3, 100))
    numpy_peak._triad((a, b, c))
    np.testing.assert_array_equal(a, b + 3 * c)


def test_all_threads_together_compute_the_whole_triad(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    monkeypatch.setattr(numpy_peak, "_triad", lambda arrays: lengths.append(len(arrays[0])))
    assert triad_seconds(8 * 1001, threads=3, repeats=2) > 0
    assert sum(lengths) == 3 * 1001  # once before timing starts
    assert len(lengths) == 9


def test_the_product_is_that_of_square_float32_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(call: Callable[[], Any], repeats: int) -> float:
        product = call()
        assert (product.shape, product.dtype) == ((5, 5), np.float32)
        return float(repeats)

    assert product_seconds(5, repeats=3) > 0
    monkeypatch.setattr(numpy_peak, "_median_seconds", once)
    assert product_seconds(5, repeats=3) == 3
