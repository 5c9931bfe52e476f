"""Which variants go together, and with which networks."""

from __future__ import annotations

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import walk
from polybench.core.sequence_layers import LSTM

_OF_LSTMS = {"nofuse": "keep from cuDNN's fused kernel", "unrolled": "unroll"}


def check(job: Job) -> None:
    """Raise Unavailable where a variant has nothing to change, or cannot be with another one."""
    if {"xla", "eager"} <= set(job.variants):
        raise Unavailable("XLA compiles a tf.function, and eager has none", "leave +xla or +eager out")
    lstms = [layer for layer in walk(job.model.layers) if isinstance(layer, LSTM)]
    for variant, what in _OF_LSTMS.items():
        if variant in job.variants and not lstms:
            raise Unavailable(f"{job.model.name} has no LSTM to {what}", f"leave +{variant} out")
    fused = job.device != "cpu" and not set(_OF_LSTMS) & set(job.variants)
    if "xla" in job.variants and fused and any(one.recurrent_activation == "sigmoid" for one in lstms):
        raise Unavailable(
            f"Keras takes cuDNN's fused kernel for the LSTM of {job.model.name}, and XLA has none of it",
            "add +nofuse: tf+nofuse+xla",
        )
