"""Jobs that Flux or a variant does not support, and known deviations from the exact rules."""

from __future__ import annotations

import os
from typing import Any

from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.errors import EngineUnavailable
from polybench.networks.layers import walk

STEP_MODES = ("train", "enzyme", "mooncake", "reactant")
"""Variants that replace the whole step, which is `withgradient` with Zygote by default."""
_EXCLUSIVE = (("gc_every_step", "gc_off"), STEP_MODES)
_MAX_POOL, _RELU = "src/impl/pooling_direct.jl", "src/activations.jl"

_THROUGH_RELU = ("enzyme", "mooncake")
"""Variants that differentiate NNlib's `relu` as written. Zygote uses its rule, which is 0 at 0."""


def validate(job: Job) -> None:
    """Raise EngineUnavailable, with an alternative, if the job is not supported."""
    if job.workload.precision == "tf32" and os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        raise EngineUnavailable("NVIDIA_TF32_OVERRIDE=0 disables TensorFloat-32", "unset it")
    for group in _EXCLUSIVE:
        if len(requested := [name for name in group if name in job.variants]) > 1:
            raise EngineUnavailable(f"{' and '.join(requested)} exclude each other", "use one of them")
    if job.workload.precision == "bf16":
        # Initial weights, snapshots and training states are the network's own arrays here.
        raise EngineUnavailable(
            "bf16 is not implemented for Julia: Flux.bf16 makes the network's own weights bfloat16, and the"
            " float32 weights are in the state of Optimisers.MixedPrecision",
            "use --precision fp32",
        )
    if "mooncake" in job.variants and job.model.has_statistics:
        # Its reverse pass restores what the forward pass overwrote (seen with Mooncake 0.5.45, Flux 0.16.10).
        raise EngineUnavailable(
            "Mooncake resets the running statistics of batch norm in each step", "use flux without this variant"
        )
    if "train" in job.variants and job.workload.optimizer.gradient_clip:
        raise EngineUnavailable(
            "Flux.train! updates the weights without a place to clip gradients by their norm together",
            "use flux without this variant, or omit gradient_clip",
        )
    if "reactant" in job.variants:
        _validate_reactant(job)


def _validate_reactant(job: Job) -> None:
    if job.workload.is_forward_pass:
        raise EngineUnavailable("reactant does not have the forward pass yet", "use flux without this variant")
    if job.device != "cpu":
        raise EngineUnavailable("reactant supports the CPU only", "use --devices cpu")
    if job.dropout == "own" and job.model.is_random:
        raise EngineUnavailable("reactant does not support dropout in polybench", "use flux without this variant")
    if job.workload.optimizer.name == "adamw" or job.workload.optimizer.gradient_clip:
        raise EngineUnavailable(
            "reactant has neither adamw nor gradient_clip in polybench", "use flux without this variant"
        )
    if job.workload.optimizer.has_schedule:
        raise EngineUnavailable(
            "reactant does not support learning-rate schedules in polybench", "use flux without this variant"
        )


def conventions(polybench: Any, trainer: Any, job: Job) -> NumericalConventions:
    """Return the known deviations of this job, found by experiments with the installed versions."""
    if "reactant" in job.variants:
        return NO_DEVIATIONS  # same pooling and comparisons as JAX, through XLA
    found: dict[str, float] = {}
    sources: dict[str, str] = {}
    nnlib = f"NNlib {polybench.build_info().nnlib}"
    rules = {rule for layer in walk(job.model.layers) for rule in layer.rules}
    if "max_pool_within" in rules:
        found["max_pool_within"] = float(polybench.max_pool_within(job.dtype))
        sources["max_pool_within"] = f"{nnlib}, {_MAX_POOL}"
    variant = next((name for name in _THROUGH_RELU if name in job.variants), None)
    if variant and "relu_at_zero" in rules:
        found["relu_at_zero"] = float(polybench.relu_at_zero(trainer))
        sources["relu_at_zero"] = f"{nnlib}, {_RELU}, as {variant.capitalize()} differentiates it"
    declared = {rule: value for rule, value in found.items() if value}
    return NumericalConventions(**declared, sources={rule: sources[rule] for rule in declared})  # type: ignore[arg-type]
