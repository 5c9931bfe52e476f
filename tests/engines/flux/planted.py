"""The flux engine with a bug planted in its Julia code: the parity check must fail every one of them."""

from __future__ import annotations

from typing import Any

from polybench.core.job import EXACT, Conventions
from polybench.engines.flux.engine import FluxEngine

PLANT = 'code -> (include_string(PolyBench, code, "planted"); nothing)'
TAKE_OUT = """
function ()
    ours = PolyBench.flipped, PolyBench.batches, PolyBench.train_step!, PolyBench.loss_and_gradients
    all = Iterators.flatten(methods(f) for f in (ours..., PolyBench.Flux.Optimisers.apply!))
    planted = [method for method in all if method.file === :planted]
    foreach(Base.delete_method, planted)
    return length(planted)
end
"""


class _Planted(FluxEngine):
    """`julia`: methods for more special arguments than those of the methods in whose place they are."""

    julia: str

    def load_framework(self) -> None:
        super().load_framework()
        _function(PLANT)(self.julia)


class KernelNotReversed(_Planted):
    julia = "flipped(kernel::Array{<:Real,4}) = copy(kernel)"


class WrongAxisOrder(_Planted):
    """Images (height, width), kernels (width, height)."""

    julia = """
    function batches(d::CPU, ::Type{T}, x::Array{Float32,5}, y::Matrix{Int64}, classes::Int) where {T}
        turned = permutedims(x, (2, 1, 3, 4, 5))
        onehot(step) = Flux.onehotbatch(view(y, :, step), 0:(classes - 1))
        return [Batch(Array{T,4}(turned[:, :, :, :, step]), onehot(step), x) for step in axes(y, 2)]
    end
    """


class SoftmaxTwice(_Planted):
    julia = """
    const wrong_loss = (m, x, y) -> Flux.logitcrossentropy(Flux.softmax(m(x)), y)
    function train_step!(::Way, model::Flux.Chain, state, batch)
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


class WrongMomentum(_Planted):
    """v <- mu v + (1 - mu) g."""

    julia = """
    function Flux.Optimisers.apply!(o::Flux.Momentum, v::Array, x::Array{T}, g) where {T}
        v .= T(o.rho) .* v .+ T((1 - o.rho) * o.eta) .* g
        return v, v
    end
    """


class Undeclared(FluxEngine):
    """No bug, but silent about NNlib's max-pool rule."""

    def conventions(self) -> Conventions:
        return EXACT


class Mended(FluxEngine):
    """No bug any more in the process in which another engine has planted one."""

    def load_framework(self) -> None:
        super().load_framework()
        take_out = _function(TAKE_OUT)
        take_out()
        assert take_out() == 0


def _function(code: str) -> Any:
    import juliacall

    return juliacall.Main.seval(code)
