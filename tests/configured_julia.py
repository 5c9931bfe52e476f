"""The Julia that `polybench setup flux` found, for tests that run it."""

from __future__ import annotations

import pytest

from polybench.engines.flux.julia.discovery import Julia, check, find, loadable
from polybench.errors import EngineUnavailable


def configured_julia(*packages: str) -> Julia:
    """Return Julia with Flux and these packages in its project, or skip the test."""
    try:
        check(julia := find())
    except EngineUnavailable as missing:
        pytest.skip(missing.reason)
    if lacking := set(packages) - loadable(julia).keys():
        pytest.skip(f"Julia's project lacks {', '.join(sorted(lacking))}")
    return julia
