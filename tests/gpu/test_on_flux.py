"""Flux's CUDA path on a device, through CUDA.jl and cuDNN.jl."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.engines import pipeline_checks
from tests.gpu.engine_fixtures import GpuEngineFixture, on_gpu
from tests.gpu.experiments import check_max_pool_rule

pytestmark = pytest.mark.gpu

_GRADIENT = """
(x, size, stride) -> begin
    pooled(a) = sum(Flux.NNlib.maxpool(a, (size, size); stride))
    Array(only(Flux.gradient(pooled, CUDA.CuArray{Float32}(x))))
end
"""


@on_gpu("flux")
def test_the_max_pool_rule_of_cudnn(fixture: GpuEngineFixture) -> str:
    fixture.build()
    function = fixture.engine._main.seval(_GRADIENT)  # type: ignore[attr-defined]

    def gradient(x: Array, size: int, stride: int) -> Array:
        # Reversed C order is Julia's order: (width, height, channels, batch).
        return np.asarray(function(x.T, size, stride)).T

    return check_max_pool_rule(gradient)


@on_gpu("flux")
def test_fluxs_pipeline_batches_follow_the_augmentations(fixture: GpuEngineFixture) -> str:
    pipeline_checks.returns_augmented_batches_with_any_number_of_workers(fixture)
    return ""


@on_gpu("flux")
def test_allocations_and_peak_of_flux_are_read(fixture: GpuEngineFixture) -> str:
    return fixture.describe_allocations()
