"""The flux engine with bugs in its Julia code or in its program; the parity check must fail each of them."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from unittest.mock import patch

from polybench.engines.base import Weights
from polybench.engines.flux import engine
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions

correct_emit = engine.emit

INJECT = 'code -> (include_string(PolyBench, code, "injected"); nothing)'
REMOVE_BUGS = """
function ()
    (; Flux, NNlib) = PolyBench
    functions = (
        Core.kwcall, PolyBench.add_gradients!, Flux.normalise, Flux.Optimisers.apply!,
        NNlib.dot_product_attention_scores, NNlib.make_causal_mask,
    )
    all = Iterators.flatten(map(methods, functions))
    injected = [method for method in all if method.file === :injected]
    foreach(Base.delete_method, injected)
    return length(injected)
end
"""


class _InjectedBug(FluxEngine):
    """An engine with a bug. `julia` has methods that are more specific than those that they replace."""

    julia: str

    def __init__(self) -> None:
        super().__init__()
        _function(INJECT)(self.julia)


class _OtherProgram(FluxEngine):
    """Changes the text of the program, if it has such a part."""

    pattern: ClassVar[str]
    replacement: ClassVar[str]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", self._emit):
            super().build(job, weights)

    def _emit(self, job: Job) -> str:
        return re.sub(self.pattern, self.replacement, correct_emit(job))


class KernelNotReversed(_OtherProgram):
    pattern, replacement = r"@view weight\[end:-1:1, end:-1:1, :, :\]", "weight"


class WrongAxisOrder(_OtherProgram):
    """Swap height and width of images, but not of kernels."""

    pattern, replacement = r"(convert\(Array\{DTYPE\}, images\))", r"permutedims(\1, (2, 1, 3, 4))"


class SoftmaxTwice(_OtherProgram):
    pattern, replacement = r"(Flux\.logitcrossentropy\()(model\(inputs\))", r"\1Flux.softmax(\2)"


class WrongMomentum(_InjectedBug):
    """Use v <- mu v + (1 - mu) g."""

    julia = """
    function Flux.Optimisers.apply!(o::Flux.Momentum, v::Array, x::Array{T}, g) where {T}
        v .= T(o.rho) .* v .+ T((1 - o.rho) * o.eta) .* g
        return v, v
    end
    """


class NoMask(_InjectedBug):
    """Each position sees all others."""

    julia = "NNlib.make_causal_mask(x::Array{<:Real,3}; dims = 2) = trues(size(x, dims), size(x, dims))"


class ShiftedMask(_InjectedBug):
    """Each position sees the next one."""

    julia = """
    function NNlib.make_causal_mask(x::Array{<:Real,3}; dims = 2)
        time = axes(x, dims)
        return time .<= time' .+ 1
    end
    """


_SCORES = """
    function NNlib.dot_product_attention_scores(
            q::Array{T,4}, k::Array{T,4}, ::Nothing; fdrop = identity, mask = nothing
        ) where {T}
        scores = NNlib.batched_mul(permutedims(k, (3, 1, 2, 4)), permutedims(q, (1, 3, 2, 4))) ./ %s
        return NNlib.softmax(NNlib.apply_attn_mask(scores, mask); dims = %d)
    end
"""


class MissingScale(_InjectedBug):
    """The scores are not divided by the root of a head's width."""

    julia = _SCORES % ("one(T)", 1)


class SoftmaxOverQueries(_InjectedBug):
    """The scores of each key, not of each query, add up to 1."""

    julia = _SCORES % ("sqrt(T(size(q, 1)))", 2)


class OtherNormEpsilon(_InjectedBug):
    """Keras's default epsilon in every layer norm."""

    julia = """
    Flux.normalise(x::Array{T,3}; dims, eps) where {T} =
        (x .- Flux.mean(x; dims)) ./ sqrt.(Flux.var(x; dims, corrected = false) .+ T(1.0e-3))
    """


class OtherGELU(_OtherProgram):
    """The approximation of GELU for GELU, and the other way round."""

    def _emit(self, job: Job) -> str:
        others = {"gelu_erf": "gelu_tanh", "gelu_tanh": "gelu_erf"}
        return re.sub("|".join(others), lambda found: others[found[0]], correct_emit(job))


class UnaddedGradients(_InjectedBug):
    """The gradient of a tied layer's weight is not added to that of its table."""

    julia = "add_gradients!(found, array::Array, gradient::AbstractArray) = (found[array] = gradient; nothing)"


class FrozenClassToken(_OtherProgram):
    """The class token has no gradient."""

    pattern = r"hcat\((layer\.token) (.*?\)\)), x\)"
    replacement = r"hcat(Flux.ignore_derivatives(() -> \1 \2) .+ zero(eltype(x)) .* \1, x)"


class CoupledDecay(_InjectedBug):
    """The decay of AdamW is added to the gradient."""

    julia = """
    Flux.Optimisers.apply!(o::Flux.AdamW, state::Tuple, x::Array, dx) =
        Flux.Optimisers.apply!(Flux.Adam(o.eta, o.beta, o.epsilon), state, x, dx .+ eltype(x)(o.lambda) .* x)
    """


class DecayOnBiases(_OtherProgram):
    """AdamW decays all tensors."""

    pattern, replacement = r"ndims\(first\(leaf\.state\)\) > 1", "true"


class NoDeclaration(FluxEngine):
    """Without a bug, but without the declaration of NNlib's max-pool rule."""

    def conventions(self) -> NumericalConventions:
        return NO_DEVIATIONS


class BugsRemoved(FluxEngine):
    """Remove the bugs that other engines injected into this process."""

    def __init__(self) -> None:
        super().__init__()
        remove_bugs = _function(REMOVE_BUGS)
        remove_bugs()
        assert remove_bugs() == 0


def _function(code: str) -> Any:
    import juliacall

    return juliacall.Main.seval(code)
