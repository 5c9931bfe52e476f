"""The flux engine with bugs in its Julia code; the parity check must fail each of them."""

from __future__ import annotations

from typing import Any

from polybench.engines.flux.engine import FluxEngine
from polybench.engines.job import NO_DEVIATIONS, NumericalConventions

INJECT = 'code -> (include_string(PolyBench, code, "injected"); nothing)'
REMOVE_BUGS = """
function ()
    (; Flux, NNlib) = PolyBench
    functions = (
        Core.kwcall, PolyBench.convert_layout, PolyBench.batches, PolyBench.train_step!, PolyBench.loss_and_gradients,
        PolyBench.activation, PolyBench.decay_matrices_only!, PolyBench.named_gradients, PolyBench.prepend_token,
        Flux.normalise, Flux.Optimisers.apply!, NNlib.dot_product_attention_scores, NNlib.make_causal_mask,
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


class KernelNotReversed(_InjectedBug):
    julia = "convert_layout(kernel::Array{<:Real,4}) = copy(kernel)"


class WrongAxisOrder(_InjectedBug):
    """Swap height and width of images, but not of kernels."""

    julia = """
    function batches(d::CPU, ::Type{T}, x::Array{Float32,5}, y::Matrix{Int64}, classes::Int) where {T}
        turned = permutedims(x, (2, 1, 3, 4, 5))
        onehot(step) = Flux.onehotbatch(view(y, :, step), 0:(classes - 1))
        return [Batch(Array{T,4}(turned[:, :, :, :, step]), onehot(step), x) for step in axes(y, 2)]
    end
    """


class SoftmaxTwice(_InjectedBug):
    julia = """
    const wrong_loss = (m, x, y) -> Flux.logitcrossentropy(Flux.softmax(m(x)), y)
    function train_step!(::StepMode, model::Flux.Chain, state, batch)
        loss, gradients = Flux.withgradient(m -> wrong_loss(m, batch.images, batch.labels), model)
        Flux.update!(state, model, gradients[1])
        return loss
    end
    function loss_and_gradients(trainer::Trainer, batches::Vector{<:Batch}, step::Int)
        batch, chain = batches[step % length(batches) + 1], trainer.network.chain
        loss, gradients = Flux.withgradient(m -> wrong_loss(m, batch.images, batch.labels), chain)
        return loss, parameters(trainer.network, gradients[1])
    end
    """


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


class OtherGELU(_InjectedBug):
    """The approximation of GELU for GELU, and the other way round."""

    julia = """
    activation(::Val{:gelu}, record::Record) =
        get(record, "approximate", "none") == "tanh" ? NNlib.gelu_erf : NNlib.gelu_tanh
    """


class UnaddedGradients(_InjectedBug):
    """The gradient of a tied layer's weight is not added to that of its table."""

    julia = "named_gradients(network::Network, gradient::NamedTuple) = parameters(network, gradient)"


class FrozenClassToken(_InjectedBug):
    """The class token has no gradient."""

    julia = """
    prepend_token(token::Vector{T}, x::Array{T,3}) where {T} =
        hcat(ignore_derivatives(() -> token .* ones(T, 1, 1, size(x, 3))) .+ zero(T) .* token, x)
    """


class CoupledDecay(_InjectedBug):
    """The decay of AdamW is added to the gradient."""

    julia = """
    Flux.Optimisers.apply!(o::Flux.AdamW, state::Tuple, x::Array, dx) =
        Flux.Optimisers.apply!(Flux.Adam(o.eta, o.beta, o.epsilon), state, x, dx .+ eltype(x)(o.lambda) .* x)
    """


class DecayOnBiases(_InjectedBug):
    """AdamW decays all tensors."""

    julia = "decay_matrices_only!(state::NamedTuple) = state"


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
