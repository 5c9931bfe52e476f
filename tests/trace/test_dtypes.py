"""Types of numbers, by their names and by the values that they leave."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.trace.dtypes import rounding_unit, significant_bits, type_with_unit
from polybench.trace.file import Array

RANDOM = np.random.default_rng(0)
GRADIENT = RANDOM.normal(size=(8, 32)).astype("f4")


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        ("float64", 2**-52),
        ("float32", 2**-23),
        ("float16", 2**-10),
        ("bfloat16", 2**-7),
        ("float8_e4m3fn", 2**-3),
        ("float8_e5m2", 2**-2),
        ("int64", 0.0),
        ("uint8", 0.0),
        ("bool", 0.0),
    ],
)
def test_rounding_units(dtype: str, unit: float) -> None:
    assert rounding_unit(dtype) == unit
    if dtype in ("float64", "float32", "float16", "bfloat16"):
        assert type_with_unit(unit) == dtype


def to_bits(values: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**bits), exponent - bits).astype("f4")


@pytest.mark.parametrize("bits", [8, 11, 24])
def test_significant_bits_of_gradients(bits: int) -> None:
    assert significant_bits([to_bits(GRADIENT, bits), GRADIENT[0]]) == bits


@pytest.mark.parametrize("unit", [2.0**-27, 2.0**-30, 2.0**-33])
def test_gradients_that_are_rounding_have_no_precision(unit: float) -> None:
    rounding = (unit * RANDOM.integers(-8, 8, 32)).astype("f4")
    assert significant_bits([GRADIENT, rounding]) == 24
    assert significant_bits([to_bits(GRADIENT, 11), rounding]) == 11


def test_no_gradients_have_all_bits() -> None:
    assert significant_bits([]) == significant_bits([np.zeros((4, 8))]) == 24
