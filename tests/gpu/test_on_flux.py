"""Flux's CUDA path on a device, through CUDA.jl and cuDNN.jl."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.engines import pipeline_checks
from tests.gpu.lab import GpuLab, on_gpu
from tests.gpu.pooling import rule_of

pytestmark = pytest.mark.gpu

_GRADIENT = """
(x, size, stride) -> begin
    pooled(a) = sum(Flux.NNlib.maxpool(a, (size, size); stride))
    Array(only(Flux.gradient(pooled, CUDA.CuArray{Float32}(x))))
end
"""


@on_gpu("flux")
def test_the_max_pool_rule_of_cudnn(lab: GpuLab) -> str:
    lab.build()
    function = lab.engine._main.seval(_GRADIENT)  # type: ignore[attr-defined]

    def gradient(x: Array, size: int, stride: int) -> Array:
        # C order reversed is Julia's own: (width, height, channels, batch).
        return np.asarray(function(x.T, size, stride)).T

    rule = rule_of(gradient)
    assert rule.declaration == "EXACT", rule
    return f"{rule}, so {rule.declaration}"


@on_gpu("flux")
def test_the_batches_of_fluxs_pipeline_are_those_of_the_decisions(lab: GpuLab) -> str:
    pipeline_checks.gives_the_batches_of_the_decisions_whoever_prepares_them(lab)
    return ""


@on_gpu("flux")
def test_allocations_and_peak_of_flux_are_read(lab: GpuLab) -> str:
    return lab.allocations_are_told()
