"""
The same network in Lux, and steps by `Training.single_train_step!`. Weights are the arrays of Flux's chain, which Lux updates in
place; Lux's own states, which each step replaces, are taken from the chain before steps and put back after them.
"""
module PolyBenchLuxExt

using Lux: AutoZygote, Lux, Training
using PolyBench: PolyBench, Device, GivenDropout, Way
using PolyBench.Flux: BatchNorm, Chain, Conv, Dense, Dropout, Embedding, Flux, GlobalMeanPool, MaxPool, MeanPool, Parallel,
    SkipConnection
using PolyBench.Random: Random

mutable struct LuxModel{C <: Chain, L}
    const chain::C
    const layers::L
    "What Lux hands from step to step; of another type only after another start."
    trained::Any
end

PolyBench.differentiable(::Way{:lux}, chain) = LuxModel(chain, in_lux(chain), nothing)
PolyBench.chain_of(model::LuxModel) = model.chain

function PolyBench.fresh_state(::Way{:lux}, rule, model::LuxModel)
    model.trained = Training.TrainState(model.layers, parameters(model.chain), states(model.chain), rule)
    return model.trained.optimizer_state
end

# One object for all steps, as Lux's users have it.
const LOSS = Lux.CrossEntropyLoss(; logits = Val(true))

function PolyBench.train!(way::Way{:lux}, model::LuxModel, _, batches, loss)
    trained = model.trained
    for batch in batches
        _, value, _, trained = Training.single_train_step!(AutoZygote(), LOSS, (batch.images, batch.labels), trained)
        loss = value::typeof(loss)
        PolyBench.after_step(way)
    end
    model.trained = trained
    return loss
end

function PolyBench.with_gradient(::Way{:lux}, model::LuxModel, images, labels)
    gradients, loss, _, _ = Training.compute_gradients(AutoZygote(), LOSS, (images, labels), model.trained)
    return loss, in_flux(model.chain, gradients)
end

PolyBench.infer(::Device, model::LuxModel, x) =
    first(model.layers(x, model.trained.parameters, Lux.testmode(model.trained.states)))

function PolyBench.before_steps!(model::LuxModel)
    old = model.trained
    states = with_statistics(model.chain, old.states)
    model.trained = Training.TrainState(
        old.cache, old.objective_function, old.allocator_cache, old.model, old.parameters, states, old.optimizer,
        old.optimizer_state, old.step,
    )
    return nothing
end

PolyBench.after_steps!(model::LuxModel) = keep_statistics!(model.chain, model.trained.states)

"""
    in_lux(layer)

Lux's own layer for one of Flux's, as Lux's users write it.
"""
in_lux(chain::Chain) = Lux.Chain(map(in_lux, chain.layers)...)
in_lux(skip::SkipConnection) = Lux.SkipConnection(in_lux(skip.layers), skip.connection)
in_lux(fork::Parallel) = Lux.Parallel(fork.connection, map(in_lux, fork.layers)...)
in_lux(layer::Conv) = Lux.Conv(
    size(layer.weight)[1:2], size(layer.weight, 3) => size(layer.weight, 4), layer.σ;
    layer.stride, layer.pad, use_bias = layer.bias !== false,
)
in_lux(layer::Dense) = Lux.Dense(reverse(size(layer.weight))..., layer.σ)
in_lux(layer::BatchNorm) = Lux.BatchNorm(layer.chs, layer.λ; epsilon = layer.ϵ, momentum = layer.momentum)
in_lux(layer::Embedding) = Lux.Embedding(size(layer.weight, 2) => size(layer.weight, 1))
in_lux(layer::MaxPool) = Lux.MaxPool(layer.k; layer.stride, layer.pad)
in_lux(layer::MeanPool) = Lux.MeanPool(layer.k; layer.stride, layer.pad)
in_lux(::GlobalMeanPool) = Lux.GlobalMeanPool()
in_lux(layer::Dropout) = Lux.Dropout(layer.p)
in_lux(::typeof(Flux.flatten)) = Lux.FlattenLayer()
in_lux(::typeof(identity)) = Lux.NoOpLayer()
in_lux(layer::Function) = Lux.WrappedFunction(layer)
in_lux(layer::GivenDropout) = Lux.WrappedFunction(x -> layer(x)) # which takes functions only
in_lux(layer) = throw(ArgumentError("PolyBench has no layer of Lux's for $(nameof(typeof(layer)))"))

const NONE = NamedTuple()

"""What Lux calls `layer_1` and so on."""
numbered(parts) = NamedTuple{ntuple(index -> Symbol(:layer_, index), length(parts))}(Tuple(parts))

"""
    parameters(layer)

The chain's own arrays, in Lux's tree and by Lux's names.
"""
parameters(layer::Union{Chain, Parallel}) = numbered(map(parameters, layer.layers))
parameters(layer::SkipConnection) = parameters(layer.layers)
parameters(layer::Union{Conv, Dense}) = layer.bias === false ? (; layer.weight) : (; layer.weight, layer.bias)
parameters(layer::BatchNorm) = (scale = layer.γ, bias = layer.β)
parameters(layer::Embedding) = (; layer.weight)
parameters(_) = NONE

"""
    states(layer)

Lux's states at the beginning of a training. Dropout draws from this session's own generator, as Flux's does, and so goes on
with it: what Lux would copy for each layer, it leaves as it is where that is the session's (`replicate` in `LuxCore.jl`).
"""
states(layer::Union{Chain, Parallel}) = numbered(map(states, layer.layers))
states(layer::SkipConnection) = states(layer.layers)
states(layer::BatchNorm) = (running_mean = copy(layer.μ), running_var = copy(layer.σ²), training = Val(true))
states(layer) = Lux.initialstates(Random.default_rng(), in_lux(layer))

"""
    with_statistics(layer, states)

The same states with the chain's running statistics.
"""
with_statistics(layer::Union{Chain, Parallel}, old) = NamedTuple{keys(old)}(map(with_statistics, layer.layers, values(old)))
with_statistics(layer::SkipConnection, old) = with_statistics(layer.layers, old)
with_statistics(layer::BatchNorm, old) = (running_mean = copy(layer.μ), running_var = copy(layer.σ²), old.training)
with_statistics(_, old) = old

keep_statistics!(layer::Union{Chain, Parallel}, new) = foreach(keep_statistics!, layer.layers, values(new))
keep_statistics!(layer::SkipConnection, new) = keep_statistics!(layer.layers, new)
keep_statistics!(layer::BatchNorm, new) = (copyto!(layer.μ, new.running_mean); copyto!(layer.σ², new.running_var); nothing)
keep_statistics!(_, _) = nothing

"""
    in_flux(layer, gradient)

Lux's gradient in the tree of Flux's.
"""
in_flux(layer::Union{Chain, Parallel}, gradient) = (layers = map(in_flux, layer.layers, values(gradient)),)
in_flux(layer::SkipConnection, gradient) = (layers = in_flux(layer.layers, gradient),)
in_flux(::BatchNorm, gradient) = (γ = gradient.scale, β = gradient.bias)
in_flux(::Union{Chain, Parallel, SkipConnection}, ::Nothing) = nothing  # no weights in there
in_flux(_, gradient) = gradient

end
