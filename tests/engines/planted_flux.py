"""The flux engine with a bug planted in its Julia code: the parity check must fail every one of them."""

from __future__ import annotations

from polybench.engines.base import EXACT, Conventions
from polybench.engines.flux import FluxEngine


class _Planted(FluxEngine):
    julia: str

    def load_framework(self) -> None:
        super().load_framework()
        import juliacall

        juliacall.Main.seval(f"@eval PolyBench begin {self.julia} end; nothing")


class KernelNotReversed(_Planted):
    julia = "flipped(kernel::AbstractArray{<:Real,4}) = copy(kernel)"


class WrongAxisOrder(_Planted):
    """Images (height, width), kernels (width, height)."""

    julia = """
    function batches(d::Device, ::Type{T}, x::Array{Float32,5}, y::Matrix{Int64}, classes::Int) where {T}
        turned = permutedims(x, (2, 1, 3, 4, 5))
        onehot(step) = Flux.onehotbatch(view(y, :, step), 0:(classes - 1))
        return [Batch(Array{T,4}(turned[:, :, :, :, step]), onehot(step), x) for step in axes(y, 2)]
    end
    """


class SoftmaxTwice(_Planted):
    julia = """
    const wrong_loss = (m, x, y) -> Flux.logitcrossentropy(Flux.softmax(m(x)), y)
    function train_step!(model, state, batch)
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
    function Flux.Optimisers.apply!(o::Flux.Momentum, v, x::AbstractArray{T}, g) where {T}
        v .= T(o.rho) .* v .+ T((1 - o.rho) * o.eta) .* g
        return v, v
    end
    """


class Undeclared(FluxEngine):
    """No bug, but silent about NNlib's max-pool rule."""

    def conventions(self) -> Conventions:
        return EXACT
