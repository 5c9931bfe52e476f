"""What crosses the border to Julia: addresses of arrays, and layers as text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import tomli_w

from polybench.core.layers import Layer
from polybench.engines.base import Weights


def addresses(arrays: Weights) -> tuple[int, ...]:
    """Where C-order arrays are; they must outlive the call that gets this."""
    return tuple(array.ctypes.data for array in arrays.values())


def as_toml(layers: Sequence[Layer]) -> str:
    """The records, as `records` in `julia/src/network.jl` reads them."""
    return tomli_w.dumps({"layers": msgspec.to_builtins(layers)})
