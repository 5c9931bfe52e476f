"""TensorFloat-32: it has 10 bits of mantissa, float32 has 23; half of its last bit is 4.9e-4."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from polybench.engines.base import Array

SHAPES = {
    "product": ((2048, 2048), (2048, 2048)),
    "convolution": ((32, 64, 32, 32), (64, 64, 3, 3)),
}


class Operation(Protocol):
    """Function that computes on the GPU from float32 arrays of SHAPES and returns float64."""

    def __call__(self, dtype: str, tf32: bool, /, *given: Array) -> Array: ...


def off_and_on(**operations: Operation) -> str:
    """Compare the errors against float64, without and with TensorFloat-32."""
    errors = []
    for name, operation in operations.items():
        random = np.random.default_rng(0)
        given = [random.standard_normal(shape, np.float32) for shape in SHAPES[name]]
        exact = operation("float64", False, *given)
        off, on = (
            float(np.linalg.norm(operation("float32", tf32, *given) - exact) / np.linalg.norm(exact))
            for tf32 in (False, True)
        )
        assert off < 2e-5, f"{name}: error {off:.1e} where TensorFloat-32 is off"
        assert 5e-5 < on < 5e-3, f"{name}: error {on:.1e} where TensorFloat-32 is on"
        errors.append(f"{name}: error {off:.1e} without, {on:.1e} with")
    return "; ".join(errors)
