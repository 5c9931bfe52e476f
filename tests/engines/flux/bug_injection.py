"""The flux engine with bugs in its Julia code; the parity check must fail each of them."""

from __future__ import annotations

from typing import Any

from polybench.engines.flux.engine import FluxEngine
from polybench.engines.job import NO_DEVIATIONS, NumericalConventions

INJECT = 'code -> (include_string(PolyBench, code, "injected"); nothing)'
REMOVE_BUGS = """
function ()
    functions = PolyBench.convert_layout, PolyBench.batches, PolyBench.train_step!, PolyBench.loss_and_gradients
    all = Iterators.flatten(methods(f) for f in (functions..., PolyBench.Flux.Optimisers.apply!))
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
