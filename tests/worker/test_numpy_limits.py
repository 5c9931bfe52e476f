from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polybench.worker import numpy_limits
from polybench.worker.numpy_limits import product_seconds, triad_seconds


def test_the_triad_is_one_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_limits, "_CHUNK", 7)
    a, b, c = np.random.default_rng(0).random((3, 100))
    numpy_limits._triad((a, b, c))
    np.testing.assert_array_equal(a, b + 3 * c)


def test_all_threads_together_do_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(numpy_limits, "_triad", lambda part: done.append(len(part[0])))
    assert triad_seconds(8 * 1001, threads=3, repeats=2) > 0
    assert sum(done) == 3 * 1001  # once before the clock starts
    assert len(done) == 9


def test_a_product_is_of_square_matrices_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(call: Callable[[], Any], repeats: int) -> float:
        product = call()
        assert (product.shape, product.dtype) == ((5, 5), np.float32)
        return float(repeats)

    assert product_seconds(5, repeats=3) > 0
    monkeypatch.setattr(numpy_limits, "_median_seconds", once)
    assert product_seconds(5, repeats=3) == 3
