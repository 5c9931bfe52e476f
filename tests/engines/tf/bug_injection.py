"""The tf engine with Keras's own formulas, and with bugs in its layers and in its data-parallel training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar
from unittest.mock import patch

import keras
import msgspec
import numpy as np
from keras import ops

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.tf import engine
from polybench.engines.tf.engine import TensorFlowEngine

correct_emit = engine.emit


class _OtherProgram(TensorFlowEngine):
    """Changes the text of the program, if it has such parts."""

    replacements: ClassVar[Sequence[tuple[str, str]]] = ()

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", self._emit):
            super().build(job, weights)

    def _emit(self, job: Job) -> str:
        text = correct_emit(job)
        for pattern, replacement in self.replacements:
            text = re.sub(pattern, replacement, text)
        return text


class KerasEpsilon(_OtherProgram):
    """Keras's Adam and RMSprop: epsilon is added before the bias correction, and inside the root."""

    replacements = ((r"optimizer = (Adam|RMSprop)\(", r"optimizer = keras.optimizers.\1("),)


class KerasRateInVelocity(_OtherProgram):
    """Keras's SGD with a schedule: the velocity is not rescaled when the rate changes."""

    replacements = ((r"velocity\.assign\(.*", "pass"),)


class KerasDecay(_OtherProgram):
    """Keras's AdamW without exceptions: it decays biases as well."""

    replacements = ((r"optimizer\.exclude_from_weight_decay\(.*", ""),)


class KerasClipping(_OtherProgram):
    """Keras's `global_clipnorm`: the norm without PyTorch's 1e-6."""

    replacements = ((r"\(norm \+ 1e-06\)", "norm"),)


class KerasNormEpsilon(_OtherProgram):
    """Keras's default epsilon in every layer norm."""

    replacements = ((r"(LayerNormalization\()epsilon=[^,)]+(, )?", r"\1"),)


class KerasGELU(_OtherProgram):
    """Keras's GELU, whose constants TensorFlow rounds to float32."""

    replacements = (
        (r"return x .* ops\.erf.*", "return keras.activations.gelu(x)"),
        (r"return x .* ops\.tanh.*", "return keras.activations.gelu(x, approximate=True)"),
    )


class OtherGELU(_OtherProgram):
    """The approximation of GELU for GELU, and the other way round."""

    replacements = (
        (r'Activation\("?gelu"?', "Activation(lambda x: keras.activations.gelu(x, approximate=True)"),
        (r"Activation\(tanh_gelu", "Activation(lambda x: keras.activations.gelu(x)"),
    )


class NoMask(_OtherProgram):
    """Each position sees all others."""

    replacements = (("use_causal_mask=causal", "use_causal_mask=False"),)


class Attention(keras.layers.Layer):  # type: ignore[misc]
    """Attention from Keras's own projections: the scores of a position and those up to `shift` after it."""

    def __init__(self, attention: Any, causal: bool, shift: int, axis: int, is_scaled: bool) -> None:
        super().__init__()
        self.attention, self.settings = attention, (causal, shift, axis, is_scaled)

    def build(self, shape: Any) -> None:
        if not self.attention.built:
            self.attention.build(shape, shape)

    def call(self, x: Any) -> Any:
        causal, shift, axis, is_scaled = self.settings
        projections = (self.attention._query_dense, self.attention._key_dense, self.attention._value_dense)
        q, k, v = (dense(x) for dense in projections)
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / (np.sqrt(q.shape[-1]) if is_scaled else 1.0)
        if causal:
            visible = np.tril(np.ones((x.shape[1], x.shape[1]), bool), shift)
            scores = ops.where(visible, scores, ops.cast(-1e9, scores.dtype))
        y = self.attention._output_dense(ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, axis), v))
        return ops.reshape(y, (-1, *x.shape[1:]))  # `einsum` forgets the number of positions


def _scores(*settings: object) -> Sequence[tuple[str, str]]:
    """Return the replacement of Keras's attention by `Attention` with these settings after `causal`."""
    call = f"return Attention(attention, causal, {', '.join(map(repr, settings))})(x)"
    return (
        (r"return attention\(x, x, use_causal_mask=causal\)", f"from {__name__} import Attention; {call}"),
        ("for layer in model.layers:", 'for layer in (getattr(one, "attention", one) for one in model.layers):'),
    )


class OwnScores(_OtherProgram):
    """Correct, for comparison."""

    replacements = _scores(0, -1, True)


class ShiftedMask(_OtherProgram):
    """Each position sees the next one."""

    replacements = _scores(1, -1, True)


class MissingScale(_OtherProgram):
    """The scores are not divided by the root of a head's width."""

    replacements = _scores(0, -1, False)


class SoftmaxOverQueries(_OtherProgram):
    """The scores of each key, not of each query, add up to 1."""

    replacements = _scores(0, -2, True)


class CoupledDecay(_OtherProgram):
    """The decay of AdamW is added to the gradient."""

    def _emit(self, job: Job) -> str:
        optimizer = msgspec.structs.replace(job.workload.optimizer, name="adam")
        workload = msgspec.structs.replace(job.workload, optimizer=optimizer)
        return correct_emit(msgspec.structs.replace(job, workload=workload))


class UnaddedGradients(_OtherProgram):
    """The tied layer has no gradient of its weight."""

    replacements = ((r"cast\(self\.owner\.(embeddings|kernel)", r"cast(ops.stop_gradient(self.owner.\1)"),)


class FrozenClassToken(_OtherProgram):
    """The class token has no gradient."""

    replacements = ((r"cast\(self\.token", "cast(ops.stop_gradient(self.token) + 0 * self.token"),)


class SummedGradients(_OtherProgram):
    """Each replica's loss is not scaled by the number of replicas."""

    def _emit(self, job: Job) -> str:
        return correct_emit(job).replace("loss = loss_function", f"loss = {job.workload.replicas} * loss_function")


class NoSync(TensorFlowEngine):
    """Each replica trains with its own gradients."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        self._state.compiled = self._replicas.without_allreduce(self._state.compiled, self._state.optimizer)


class SameShard(_OtherProgram):
    """All replicas train on the first shard of a batch."""

    def _emit(self, job: Job) -> str:
        count = job.workload.replicas
        first = f"np.concatenate([array[: len(array) // {count}]] * {count})"
        return correct_emit(job).replace("shares = array.", f"shares = {first}.")
