"""What Flux or a variant lacks, said before anything is built."""

from __future__ import annotations

import os

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import BatchNorm, Dropout, walk
from polybench.core.sequence_layers import LSTM
from polybench.engines.flux.julia.extra_packages import STEPS
from polybench.engines.support.frameworks import no_such_layer

_EXCLUDING = (("gc_every_step", "gc_off"), STEPS)


def refuse(job: Job) -> None:
    """Raises Unavailable where the job cannot be done, and says what to ask for instead."""
    for layer in walk(job.model.layers):
        if isinstance(layer, LSTM) and (lacks := _not_flux(layer)):
            raise no_such_layer("Flux.jl", layer, *lacks)
    if job.workload.precision == "tf32" and os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        raise Unavailable("NVIDIA_TF32_OVERRIDE=0 forbids TensorFloat-32", "unset it")
    for group in _EXCLUDING:
        if len(asked := [name for name in group if name in job.variants]) > 1:
            raise Unavailable(f"{' and '.join(asked)} exclude each other", "ask for one")
    if job.workload.precision == "bf16":
        # Initial weights, snapshots and kept trainings are the network's own arrays here.
        raise Unavailable(
            "bf16 is not written for Julia yet: Flux.bf16 makes the network's own weights bfloat16, and the"
            " float32 ones are in the state of Optimisers.MixedPrecision",
            "use --precision fp32",
        )
    if "mooncake" in job.variants and any(isinstance(layer, BatchNorm) for layer in walk(job.model.layers)):
        # Its reverse pass undoes what the forward pass has written (seen with Mooncake 0.5.45, Flux 0.16.10).
        raise Unavailable(
            "Mooncake takes the running statistics of batch norm back to what they were before the step",
            "ask for flux without it",
        )
    if "reactant" in job.variants:
        _refuse_reactant(job)


def _not_flux(layer: LSTM) -> list[str]:
    activation = layer.recurrent_activation
    return [
        *(["biases = 2"] if layer.biases == 2 else []),
        *([f'recurrent_activation = "{activation}"'] if activation != "sigmoid" else []),
    ]


def _refuse_reactant(job: Job) -> None:
    if job.device != "cpu":
        raise Unavailable("reactant is written for the CPU only", "use --devices cpu")
    if job.dropout == "own" and any(isinstance(layer, Dropout) for layer in walk(job.model.layers)):
        raise Unavailable("reactant has no dropout in polybench yet", "ask for flux without it")
    if job.workload.optimizer.schedule:
        raise Unavailable("reactant has no schedule of rates in polybench yet", "ask for flux without it")
