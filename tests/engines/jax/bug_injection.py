"""The jax engine with bugs in its layers for transformers and in AdamW; the parity check must fail each of them."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest.mock import patch

import jax
import jax.numpy as jnp
import msgspec
import optax

from polybench.engines.base import Snapshot, Weights
from polybench.engines.jax import layers, training
from polybench.engines.jax.engine import JaxEngine
from polybench.engines.job import Job
from polybench.networks import layers as spec
from polybench.networks.optimizers import Optimizer


class _OtherFunction(JaxEngine):
    """Replaces a function while the step is compiled."""

    module: ClassVar[object] = layers
    name: ClassVar[str]
    wrong: ClassVar[object]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(self.module, self.name, self.wrong):
            super().build(job, weights)

    def reset(self) -> None:
        with patch.object(self.module, self.name, self.wrong):
            super().reset()

    def snapshot(self, step: int) -> Snapshot:
        with patch.object(self.module, self.name, self.wrong):
            return super().snapshot(step)

    def run_steps(self, first: int, n: int) -> float:
        with patch.object(self.module, self.name, self.wrong):
            return super().run_steps(first, n)


correct_attention, correct_normalize, correct_gelu = layers.attend_in_float64, layers._normalize, jax.nn.gelu
correct_layer = layers.Inference.apply_layer
correct_rule, correct_decay = training._without_decay, optax.add_decayed_weights


class _OtherAttention(_OtherFunction):
    name = "attend_in_float64"


class NoMask(_OtherAttention):
    """Each position sees all others."""

    wrong = staticmethod(lambda q, k, v, is_causal: correct_attention(q, k, v, is_causal=False))


class ShiftedMask(_OtherAttention):
    """Each position sees the next one."""

    @staticmethod
    def wrong(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        with patch.object(jnp, "tri", lambda length, dtype: jnp.tril(jnp.ones((length, length), dtype), 1)):
            return correct_attention(q, k, v, is_causal=is_causal)


class MissingScale(_OtherAttention):
    """The scores are not divided by the root of a head's width."""

    wrong = staticmethod(
        lambda q, k, v, is_causal: correct_attention(q * q.shape[-1] ** 0.5, k, v, is_causal=is_causal)
    )


class SoftmaxOverQueries(_OtherAttention):
    """The scores of each key, not of each query, add up to 1."""

    @staticmethod
    def wrong(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        correct_softmax = jax.nn.softmax
        with patch.object(jax.nn, "softmax", lambda scores: correct_softmax(scores, axis=-2)):
            return correct_attention(q, k, v, is_causal=is_causal)


class OtherNormEpsilon(_OtherFunction):
    """Keras's default epsilon in every layer norm and group norm."""

    name = "_normalize"
    wrong = staticmethod(lambda x, _epsilon: correct_normalize(x, 1e-3))


class OtherGELU(_OtherFunction):
    """The approximation of GELU for GELU, and the other way round."""

    module, name = jax.nn, "gelu"
    wrong = staticmethod(lambda x, approximate: correct_gelu(x, approximate=not approximate))


class _WithoutGradient(_OtherFunction):
    """A layer whose weights have no gradient."""

    module, name = layers.Inference, "apply_layer"

    @staticmethod
    def _frozen(inference: Any, layer: spec.Layer, x: Any) -> Any:
        weights = jax.tree.map(jax.lax.stop_gradient, dict(inference._weights))
        with patch.object(inference, "_weights", weights):
            return correct_layer(inference, layer, x)


class UnaddedGradients(_WithoutGradient):
    """The tied layer has no gradient of its weight."""

    @staticmethod
    def wrong(inference: Any, layer: spec.Layer, x: Any) -> Any:
        is_wrong = isinstance(layer, spec.Dense) and layer.tied
        return (_WithoutGradient._frozen if is_wrong else correct_layer)(inference, layer, x)


class FrozenClassToken(_WithoutGradient):
    """The class token has no gradient."""

    @staticmethod
    def wrong(inference: Any, layer: spec.Layer, x: Any) -> Any:
        is_wrong = isinstance(layer, spec.ClassToken)
        return (_WithoutGradient._frozen if is_wrong else correct_layer)(inference, layer, x)


class CoupledDecay(_OtherFunction):
    """The decay of AdamW is added to the gradient."""

    module, name = training, "_without_decay"

    @staticmethod
    def wrong(optimizer: Optimizer, learning_rate: Any) -> Any:
        adam = msgspec.structs.replace(optimizer, name="adam")
        return optax.chain(optax.add_decayed_weights(optimizer.weight_decay), correct_rule(adam, learning_rate))


class DecayOnBiases(_OtherFunction):
    """AdamW decays all tensors."""

    module, name = optax, "add_decayed_weights"
    wrong = staticmethod(lambda decay, _matrices: correct_decay(decay))
