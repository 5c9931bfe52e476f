"""Types of floating-point numbers: their rounding units, and the significant bits that numbers really have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

BFLOAT16, FLOAT16, FLOAT32 = 8, 11, 24
"""Significant bits of a type."""

_BITS = {
    "float64": 53,
    "float32": FLOAT32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "float8_e4m3": 4,
    "float8_e5m2": 3,
}
_MANY = 16
"""Values whose few bits are not a coincidence."""


def rounding_unit(dtype: str) -> float:
    """Return the relative distance of neighbouring numbers: 1.2e-7 in float32; 0 for integers, which are exact."""
    if not dtype.startswith(("float", "bfloat")):
        return 0.0
    return float(2.0 ** (1 - _BITS.get(dtype.removesuffix("fn"), FLOAT32)))


def type_with_unit(unit: float) -> str:
    """Return the type that has this rounding unit."""
    return next((name for name in _BITS if rounding_unit(name) == unit), "float32")


def significant_bits(tensors: Sequence[NDArray[Any]]) -> int:
    """Return the significant bits that the values of some tensors have; a compiler may keep others in float32."""
    all_bits = [one[one != 0].astype("float32").view("uint32") for one in tensors]
    for significant in (BFLOAT16, FLOAT16):
        fitting = [bits.size for bits in all_bits if bits.size and (bits % 2 ** (FLOAT32 - significant) == 0).all()]
        if sum(fitting) >= _MANY:
            return significant
    return FLOAT32
