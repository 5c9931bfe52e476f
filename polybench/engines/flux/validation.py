"""Rejects jobs that Flux or a variant does not support, before anything is built."""

from __future__ import annotations

import os

from polybench.engines.flux.julia.extra_packages import STEP_MODES
from polybench.engines.job import Job
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.errors import EngineUnavailable
from polybench.networks.layers import LSTM, BatchNorm, Dropout, walk

_EXCLUSIVE = (("gc_every_step", "gc_off"), STEP_MODES)


def validate(job: Job) -> None:
    """Raise EngineUnavailable, with an alternative, if the job is not supported."""
    for layer in walk(job.model.layers):
        if isinstance(layer, LSTM) and (lacks := _unsupported_lstm_options(layer)):
            raise unsupported_layer("Flux.jl", layer, *lacks)
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
    if "mooncake" in job.variants and any(isinstance(layer, BatchNorm) for layer in walk(job.model.layers)):
        # Its reverse pass restores what the forward pass overwrote (seen with Mooncake 0.5.45, Flux 0.16.10).
        raise EngineUnavailable(
            "Mooncake resets the running statistics of batch norm in each step",
            "use flux without this variant",
        )
    if "reactant" in job.variants:
        _validate_reactant(job)


def _unsupported_lstm_options(layer: LSTM) -> list[str]:
    activation = layer.recurrent_activation
    return [
        *(["biases = 2"] if layer.biases == 2 else []),
        *([f'recurrent_activation = "{activation}"'] if activation != "sigmoid" else []),
    ]


def _validate_reactant(job: Job) -> None:
    if job.device != "cpu":
        raise EngineUnavailable("reactant supports the CPU only", "use --devices cpu")
    if job.dropout == "own" and any(isinstance(layer, Dropout) for layer in walk(job.model.layers)):
        raise EngineUnavailable("reactant does not support dropout in polybench", "use flux without this variant")
    if job.workload.optimizer.lr_schedule:
        raise EngineUnavailable(
            "reactant does not support learning-rate schedules in polybench", "use flux without this variant"
        )
