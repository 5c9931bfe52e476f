"""Flux.jl: for now only the row that says when it comes."""

from __future__ import annotations

from polybench.core.errors import Unavailable
from polybench.engines.base import Engine


class FluxEngine(Engine):
    """Never gets beyond `load_framework`, so the other methods stay the protocol's empty ones."""

    sample_kind = "step"

    def load_framework(self) -> None:
        raise Unavailable(
            "the Flux.jl engine arrives in the next version", "use --engines torch,tf until then"
        )
