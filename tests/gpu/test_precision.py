"""The TensorFloat-32 check distinguishes it from float32."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.gpu.precision import Operation, off_and_on


def product(bits_off: int, bits_on: int) -> Operation:
    """Return a product with factors rounded to this many bits of mantissa, for a few rows."""

    def compute(dtype: str, tf32: bool, /, *given: Array) -> Array:
        bits = 52 if dtype == "float64" else bits_on if tf32 else bits_off
        a, b = (_rounded(one.astype(np.float64), bits) for one in given)
        return a[:16] @ b

    return compute


def _rounded(values: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


def test_tf32_on_and_off_are_distinguished() -> None:
    assert off_and_on(product=product(23, 10)).startswith("product: error ")


@pytest.mark.parametrize(("off", "on", "message"), [(10, 10, "is off"), (23, 23, "is on"), (23, 2, "is on")])
def test_a_wrong_setting_is_reported(off: int, on: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        off_and_on(product=product(off, on))
