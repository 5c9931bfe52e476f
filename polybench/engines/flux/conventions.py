"""Known deviations of Flux from the exact rules, found by experiments with the installed versions."""

from __future__ import annotations

from typing import Any

from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.networks.layers import MaxPool, ReLU, walk

_MAX_POOL, _RELU = "src/impl/pooling_direct.jl", "src/activations.jl"

_THROUGH_RELU = ("enzyme", "mooncake")
"""Variants that differentiate NNlib's `relu` as written. Zygote uses its rule, which is 0 at 0."""


def conventions(polybench: Any, trainer: Any, job: Job) -> NumericalConventions:
    """Return the known deviations of this job.

    Args:
        polybench: the Julia package.
        trainer: the Julia trainer of the job.
        job: the job, with network and variants.
    """
    if "reactant" in job.variants:
        return NO_DEVIATIONS  # same pooling and comparisons as JAX, through XLA
    found: dict[str, float] = {}
    sources: dict[str, str] = {}
    nnlib = f"NNlib {polybench.build_info().nnlib}"
    if any(isinstance(layer, MaxPool) for layer in walk(job.model.layers)):
        found["max_pool_within"] = float(polybench.max_pool_within(job.dtype))
        sources["max_pool_within"] = f"{nnlib}, {_MAX_POOL}"
    variant = next((name for name in _THROUGH_RELU if name in job.variants), None)
    if variant and any(isinstance(layer, ReLU) for layer in walk(job.model.layers)):
        found["relu_at_zero"] = float(polybench.relu_at_zero(trainer))
        sources["relu_at_zero"] = f"{nnlib}, {_RELU}, as {variant.capitalize()} differentiates it"
    declared = {rule: value for rule, value in found.items() if value}
    return NumericalConventions(**declared, sources={rule: sources[rule] for rule in declared})  # type: ignore[arg-type]
