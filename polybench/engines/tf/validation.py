"""Jobs that TensorFlow or a variant does not support. This module does not import TensorFlow."""

from __future__ import annotations

from polybench.engines.job import Job
from polybench.engines.shared.frameworks import reject_batch_norm, reject_variants
from polybench.errors import EngineUnavailable
from polybench.networks.layers import LSTM, walk

_LSTM_VARIANTS = ("no_fusion", "unrolled")
_BATCH_NORM = "tf.keras.layers.BatchNormalization: synchronized=False, the default"


def validate(job: Job) -> None:
    """Raise EngineUnavailable if the job is not supported, or if a variant has no effect."""
    if {"xla", "eager"} <= set(job.variants):
        raise EngineUnavailable("eager has no tf.function that XLA could compile", "omit +xla or +eager")
    lstms = [layer for layer in walk(job.model.layers) if isinstance(layer, LSTM)]
    for variant in _LSTM_VARIANTS:
        if variant in job.variants and not lstms:
            raise EngineUnavailable(f"+{variant} has no effect: {job.model.name} has no LSTM", f"omit +{variant}")
    fused = job.device != "cpu" and not set(_LSTM_VARIANTS) & set(job.variants)
    if "xla" in job.variants and fused and any(lstm.recurrent_activation == "sigmoid" for lstm in lstms):
        raise EngineUnavailable(
            f"XLA does not support cuDNN's fused kernel, which Keras uses for the LSTM of {job.model.name}",
            "add +no_fusion: tf+no_fusion+xla",
        )
    if job.workload.replicas > 1:  # training would differ from training on one device
        reject_batch_norm(job, _BATCH_NORM)
        reject_variants(job, _LSTM_VARIANTS)
