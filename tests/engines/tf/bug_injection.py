"""The tf engine with Keras's own formulas, and with bugs in its layers and in its data-parallel training."""

from __future__ import annotations

import types
from typing import Any, ClassVar
from unittest.mock import patch

import keras
import msgspec
import numpy as np
from keras import ops

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.shared import keras_layers, keras_optimizers
from polybench.engines.shared.keras_model import CanonicalModel
from polybench.engines.tf import engine
from polybench.engines.tf.engine import TensorFlowEngine
from polybench.engines.tf.replicas import Replicas


class KerasEpsilon(TensorFlowEngine):
    """Keras's Adam and RMSprop: epsilon is added before the bias correction, and inside the root."""

    def build(self, job: Job, weights: Weights) -> None:
        keras_classes = keras_optimizers.PER_VARIABLE._replace(
            adam=keras.optimizers.Adam, rmsprop=keras.optimizers.RMSprop
        )
        with patch.object(CanonicalModel.optimizer, "__defaults__", (keras_classes,)):
            super().build(job, weights)


class KerasRateInVelocity(TensorFlowEngine):
    """Keras's SGD with a schedule: the velocity is not rescaled when the rate changes."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)

        def set_rate(optimizer: object, rate: float) -> None:
            optimizer.keras.learning_rate = np.float64(rate)

        self._optimizer.set_learning_rate = types.MethodType(set_rate, self._optimizer)


class KerasDecay(TensorFlowEngine):
    """Keras's AdamW without exceptions: it decays biases as well."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(keras.optimizers.Optimizer, "exclude_from_weight_decay"):
            super().build(job, weights)


class KerasClipping(TensorFlowEngine):
    """Keras's `global_clipnorm`: the norm without PyTorch's 1e-6."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(keras_optimizers, "Clip", _KerasClip):
            super().build(job, weights)


class _KerasClip:
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        self.global_clipnorm = float(self.largest)
        return super().apply(grads, trainable_variables)


class _OtherLayer(TensorFlowEngine):
    """Replaces a function or a class with which the network is built."""

    module: ClassVar[object] = keras_layers
    name: ClassVar[str]
    wrong: ClassVar[object]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(self.module, self.name, self.wrong):
            super().build(job, weights)


correct_gelu, correct_attention = keras_layers._gelu, keras_layers._attend_to_itself
correct_norm, correct_optimizer = keras.layers.LayerNormalization, keras_optimizers._keras_optimizer


class KerasNormEpsilon(_OtherLayer):
    """Keras's default epsilon in every layer norm."""

    module, name = keras.layers, "LayerNormalization"
    wrong = staticmethod(lambda epsilon, **options: correct_norm(**options))


class KerasGELU(_OtherLayer):
    """Keras's GELU, whose constants TensorFlow rounds to float32."""

    name = "_gelu"
    wrong = staticmethod(lambda x, is_tanh: keras.activations.gelu(x, approximate=is_tanh))


class OtherGELU(_OtherLayer):
    """The approximation of GELU for GELU, and the other way round."""

    name = "_gelu"
    wrong = staticmethod(lambda x, is_tanh: correct_gelu(x, is_tanh=not is_tanh))


class NoMask(_OtherLayer):
    """Each position sees all others."""

    name = "_attend_to_itself"
    wrong = staticmethod(lambda attention, causal, x: correct_attention(attention, False, x))


class _Attention(keras.layers.Layer):  # type: ignore[misc]
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


class _OtherScores(_OtherLayer):
    name = "_attend_to_itself"
    shift, axis, is_scaled = 0, -1, True

    @classmethod
    def wrong(cls, attention: Any, causal: bool, x: Any) -> Any:
        return _Attention(attention, causal, cls.shift, cls.axis, cls.is_scaled)(x)


class OwnScores(_OtherScores):
    """Correct, for comparison."""


class ShiftedMask(_OtherScores):
    """Each position sees the next one."""

    shift = 1


class MissingScale(_OtherScores):
    """The scores are not divided by the root of a head's width."""

    is_scaled = False


class SoftmaxOverQueries(_OtherScores):
    """The scores of each key, not of each query, add up to 1."""

    axis = -2


class CoupledDecay(_OtherLayer):
    """The decay of AdamW is added to the gradient."""

    module, name = keras_optimizers, "_keras_optimizer"
    wrong = staticmethod(
        lambda optimizer, classes: correct_optimizer(msgspec.structs.replace(optimizer, name="adam"), classes)
    )


class UnaddedGradients(_OtherLayer):
    """The tied layer has no gradient of its weight."""

    name = "TiedDense"

    class wrong(keras_layers.TiedDense):  # noqa: N801
        def call(self, inputs: Any) -> Any:
            is_table = isinstance(self._owner, keras.layers.Embedding)
            weight = ops.stop_gradient(self._owner.embeddings if is_table else self._owner.kernel)
            return ops.matmul(inputs, ops.transpose(weight) if is_table else weight)


class FrozenClassToken(_OtherLayer):
    """The class token has no gradient."""

    name = "ClassToken"

    class wrong(keras_layers.ClassToken):  # noqa: N801
        def call(self, inputs: Any) -> Any:
            trained, self.token = self.token, ops.stop_gradient(self.token) + 0 * self.token
            try:
                return super().call(inputs)
            finally:
                self.token = trained


class _WithReplicas(TensorFlowEngine):
    replicas: type[Replicas]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "Replicas", self.replicas):
            super().build(job, weights)


class SummedGradients(_WithReplicas):
    """Each replica's loss is not scaled by the number of replicas."""

    class replicas(Replicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            return super().step_functions(
                model, optimizer, lambda labels, logits: self.count * loss_function(labels, logits)
            )


class NoSync(_WithReplicas):
    """Each replica trains with its own gradients."""

    class replicas(Replicas):  # noqa: N801
        def step_functions(self, model: Any, optimizer: Any, loss_function: Any) -> tuple[Any, Any, Any]:
            _, gradients, step_without_allreduce = super().step_functions(model, optimizer, loss_function)
            return step_without_allreduce, gradients, step_without_allreduce


class SameShard(_WithReplicas):
    """All replicas train on the first shard of a batch."""

    class replicas(Replicas):  # noqa: N801
        def split(self, value: Any) -> Any:
            first = value[: len(value) // self.count]
            return super().split(np.concatenate([first] * self.count))
