"""Types of floating-point numbers: their rounding units, and the significant bits that numbers really have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
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
NO_GRADIENT = 1e-5
"""Norm of a gradient that is rounding, relative to the norm of all gradients, such as that of a bias before batch norm.
Adam makes full updates of it."""

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


def significant_bits(gradients: Sequence[NDArray[Any]]) -> int:
    """Return the significant bits that the values of some gradients have; a compiler may keep others in float32.

    Gradients that are rounding, such as those of a bias before batch norm, are small multiples of one number. They do
    not count.
    """
    norms = [float(np.linalg.norm(one)) for one in gradients]
    counted = [one for one, norm in zip(gradients, norms, strict=True) if norm > NO_GRADIENT * math.hypot(*norms)]
    all_bits = [one[one != 0].astype("float32").view("uint32") for one in counted]
    for significant in (BFLOAT16, FLOAT16):
        fitting = [bits.size for bits in all_bits if (bits % 2 ** (FLOAT32 - significant) == 0).all()]
        if sum(fitting) >= _MANY:
            return significant
    return FLOAT32
