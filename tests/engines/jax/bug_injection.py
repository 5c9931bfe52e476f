"""The jax engine with bugs in its layers for transformers and in AdamW; the parity check must fail each of them."""

from __future__ import annotations

import re
from typing import ClassVar
from unittest.mock import patch

from polybench.engines.base import Weights
from polybench.engines.jax import engine
from polybench.engines.jax.engine import JaxEngine
from polybench.engines.job import Job

correct_emit = engine.emit


class _OtherProgram(JaxEngine):
    """Changes the text of the program, if it has such a part."""

    pattern: ClassVar[str]
    replacement: ClassVar[str]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", self._emit):
            super().build(job, weights)

    def _emit(self, job: Job) -> str:
        return re.sub(self.pattern, self.replacement, correct_emit(job))


class NoMask(_OtherProgram):
    """Each position sees all others."""

    pattern, replacement = "is_causal=causal", "is_causal=False"


class ShiftedMask(_OtherProgram):
    """Each position sees the next one."""

    pattern, replacement = r"jnp\.tri\(q\.shape\[1\], ", "jnp.tri(q.shape[1], k=1, "


class MissingScale(_OtherProgram):
    """The scores are not divided by the root of a head's width."""

    pattern, replacement = r" / q\.shape\[-1\] \*\* 0\.5", ""


class SoftmaxOverQueries(_OtherProgram):
    """The scores of each key, not of each query, add up to 1."""

    pattern, replacement = r"softmax\(scores\)", "softmax(scores, axis=-2)"


class OtherNormEpsilon(_OtherProgram):
    """Keras's default epsilon in every layer norm and group norm."""

    pattern, replacement = r"centered \* lax\.rsqrt\((.*) \+ epsilon\)", r"centered * lax.rsqrt(\1 + 1e-3)"


class OtherGELU(_OtherProgram):
    """The approximation of GELU for GELU, and the other way round."""

    def _emit(self, job: Job) -> str:
        swapped = correct_emit(job).replace("approximate=False", "approximate=None")
        swapped = re.sub(r"(jax\.nn\.gelu\((?:(?!approximate).)*)\)$", r"\1, approximate=False)", swapped, flags=re.M)
        return swapped.replace("approximate=None", "approximate=True")


class UnaddedGradients(_OtherProgram):
    """The tied layer has no gradient of its weight."""

    pattern, replacement = r'@ (params\["[^"]*"\])\.T', r"@ jax.lax.stop_gradient(\1).T"


class FrozenClassToken(_OtherProgram):
    """The class token has no gradient."""

    pattern, replacement = r'(params\[f"\{name\}\.token"\])', r"jax.lax.stop_gradient(\1)"


class CoupledDecay(_OtherProgram):
    """The decay of AdamW is added to the gradient."""

    pattern, replacement = r"(?s)(scale_by_adam\(\)),\s+(optax\.add_decayed_weights\(.*?\)),", r"\2, \1,"


class DecayOnBiases(_OtherProgram):
    """AdamW decays all tensors."""

    pattern, replacement = ", is_matrix", ""
