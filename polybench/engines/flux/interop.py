"""Passes data to Julia: addresses of arrays, and layers as TOML."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import tomli_w

from polybench.engines.base import Weights
from polybench.networks.layers import Layer


def addresses(arrays: Weights) -> tuple[int, ...]:
    """Return the addresses of C-order arrays, which must outlive the call that receives them."""
    return tuple(array.ctypes.data for array in arrays.values())


def layers_toml(layers: Sequence[Layer]) -> str:
    """Return the layers as TOML, which `records` in `julia/src/network.jl` reads."""
    return tomli_w.dumps({"layers": msgspec.to_builtins(layers)})
