"""
The same network in Lux, trained by `Training.single_train_step!`. The weights are the arrays of Flux's chain, which Lux updates in
place. Each step replaces Lux's states, so they are copied from the chain before steps and back after them.
"""
module PolyBenchLuxExt

using Lux: AutoZygote, Lux, Training
using PolyBench: PolyBench, FixedMaskDropout, ImageMean, Patches, SelfAttention, StepMode, WithTensor, clip, decay_matrices_only!,
    targets, to_sequence
using PolyBench.Flux: BatchNorm, Chain, Conv, Dense, Dropout, Embedding, Flux, GlobalMeanPool, GroupNorm, LayerNorm, MaxPool,
    MeanPool, Parallel, SkipConnection
using PolyBench.Random: Random

mutable struct LuxModel{C <: Chain, L}
    const chain::C
    const layers::L
    "Lux's `TrainState`, which each step replaces."
    train_state::Any
end

PolyBench.prepare_model(::StepMode{:lux}, chain) = LuxModel(chain, to_lux(chain), nothing)
PolyBench.unwrap(model::LuxModel) = model.chain

function PolyBench.initial_state(::StepMode{:lux}, rule, model::LuxModel)
    model.train_state = Training.TrainState(model.layers, parameters(model.chain), states(model.chain), rule)
    return decay_matrices_only!(model.train_state.optimizer_state)
end

# A single object for all steps, as in Lux's documentation.
const LOSS = Lux.CrossEntropyLoss(; logits = Val(true))

function PolyBench.train!(mode::StepMode{:lux}, model::LuxModel, _, batches, loss)
    train_state = model.train_state
    for batch in batches
        data = (batch.images, targets(mode, batch.labels))
        value, train_state = step!(mode, data, train_state)
        loss = value::typeof(loss)
        PolyBench.after_step(mode)
    end
    model.train_state = train_state
    return loss
end

function step!(mode, data, train_state)
    if iszero(mode.gradient_clip)
        _, loss, _, train_state = Training.single_train_step!(AutoZygote(), LOSS, data, train_state)
        return loss, train_state
    end
    gradients, loss, _, train_state = Training.compute_gradients(AutoZygote(), LOSS, data, train_state)
    return loss, Training.apply_gradients!(train_state, clip(mode, train_state.optimizer_state, gradients))
end

function PolyBench.with_gradient(::StepMode{:lux}, model::LuxModel, images, labels)
    gradients, loss, _, _ = Training.compute_gradients(AutoZygote(), LOSS, (images, labels), model.train_state)
    return loss, to_flux(model.chain, gradients)
end

function PolyBench.forward_function(model::LuxModel)
    layers, parameters, states = model.layers, model.train_state.parameters, Lux.testmode(model.train_state.states)
    return x -> first(layers(x, parameters, states))
end

function PolyBench.before_steps!(model::LuxModel)
    old = model.train_state
    states = with_statistics(model.chain, old.states)
    model.train_state = Training.TrainState(
        old.cache, old.objective_function, old.allocator_cache, old.model, old.parameters, states, old.optimizer,
        old.optimizer_state, old.step,
    )
    return nothing
end

PolyBench.after_steps!(model::LuxModel) = save_statistics!(model.chain, model.train_state.states)

"""
    to_lux(layer)

Convert one of Flux's layers to Lux's own layer, as Lux's users write it.
"""
to_lux(chain::Chain) = Lux.Chain(map(to_lux, chain.layers)...)
to_lux(skip::SkipConnection) = Lux.SkipConnection(to_lux(skip.layers), skip.connection)
to_lux(parallel::Parallel) = Lux.Parallel(parallel.connection, map(to_lux, parallel.layers)...)
to_lux(layer::Conv) = Lux.Conv(
    size(layer.weight)[1:2], size(layer.weight, 3) * layer.groups => size(layer.weight, 4), layer.σ;
    layer.stride, layer.pad, layer.groups, use_bias = layer.bias !== false,
)
to_lux(layer::Dense) = Lux.Dense(reverse(size(layer.weight))..., layer.σ; use_bias = layer.bias !== false)
# Lux's own affine parameters need one more axis for each of the input, and are scale and bias or neither. Flux squares its epsilon.
to_lux(layer::LayerNorm) = Lux.Chain(
    Lux.LayerNorm(layer.size; affine = false, dims = 1, epsilon = layer.ϵ^2),
    Lux.Scale(layer.size; use_bias = layer.diag.bias !== false),
)
to_lux(layer::GroupNorm) = Lux.GroupNorm(layer.chs, layer.G; epsilon = layer.ϵ)
function to_lux(layer::SelfAttention)
    attention = layer.attention
    dense_kwargs = (; use_bias = attention.q_proj.bias !== false)
    features = size(attention.q_proj.weight, 1)
    is_causal = layer.causal || nothing
    return Lux.Chain(
        Lux.MultiHeadAttention(features; attention.nheads, dense_kwargs, is_causal), Lux.WrappedFunction(first),
    )
end
to_lux(layer::Patches) = Lux.Chain(to_lux(layer.conv), Lux.WrappedFunction(to_sequence))
to_lux(layer::WithTensor) = LuxWithTensor(layer.compute)
to_lux(layer::BatchNorm) = Lux.BatchNorm(layer.chs, layer.λ; epsilon = layer.ϵ, momentum = layer.momentum)
to_lux(layer::Embedding) = Lux.Embedding(size(layer.weight, 2) => size(layer.weight, 1))
to_lux(layer::MaxPool) = Lux.MaxPool(layer.k; layer.stride, layer.pad)
to_lux(layer::MeanPool) = Lux.MeanPool(layer.k; layer.stride, layer.pad)
to_lux(::GlobalMeanPool) = Lux.GlobalMeanPool()
to_lux(layer::Dropout) = Lux.Dropout(layer.p)
to_lux(::typeof(Flux.flatten)) = Lux.FlattenLayer()
to_lux(::typeof(identity)) = Lux.NoOpLayer()
to_lux(layer::Function) = Lux.WrappedFunction(layer)
to_lux(layer::Union{FixedMaskDropout, ImageMean}) = Lux.WrappedFunction(x -> layer(x)) # WrappedFunction accepts only functions
to_lux(layer) = throw(ArgumentError("PolyBench has no Lux layer for $(nameof(typeof(layer)))"))

"""Like `WithTensor`; its only parameter is `tensor`."""
struct LuxWithTensor{F} <: Lux.AbstractLuxLayer
    compute::F
end

(layer::LuxWithTensor)(x, parameters, states) = layer.compute(parameters.tensor, x), states

const NO_PARAMETERS = NamedTuple()

"""Name layers `layer_1` and so on, like Lux."""
name_layers(parts) = NamedTuple{ntuple(index -> Symbol(:layer_, index), length(parts))}(Tuple(parts))

"""
    parameters(layer)

Return the chain's own arrays in Lux's tree with Lux's names.
"""
parameters(layer::Union{Chain, Parallel}) = name_layers(map(parameters, layer.layers))
parameters(layer::SkipConnection) = parameters(layer.layers)
parameters(layer::Union{Conv, Dense}) = layer.bias === false ? (; layer.weight) : (; layer.weight, layer.bias)
parameters(layer::BatchNorm) = (scale = layer.γ, bias = layer.β)
parameters(layer::Embedding) = (; layer.weight)
parameters(layer::LayerNorm) = (
    layer_1 = NO_PARAMETERS,
    layer_2 = layer.diag.bias === false ? (; weight = layer.diag.scale) : (weight = layer.diag.scale, bias = layer.diag.bias),
)
parameters(layer::GroupNorm) = (scale = layer.γ, bias = layer.β)
function parameters(layer::SelfAttention)
    q_proj, k_proj, v_proj, out_proj = map(name -> parameters(getfield(layer.attention, name)), PROJECTIONS)
    return (layer_1 = (; q_proj, k_proj, v_proj, attention_dropout = NO_PARAMETERS, out_proj), layer_2 = NO_PARAMETERS)
end
parameters(layer::Patches) = (layer_1 = parameters(layer.conv), layer_2 = NO_PARAMETERS)
parameters(layer::WithTensor) = (; layer.tensor)
parameters(_) = NO_PARAMETERS

const PROJECTIONS = (:q_proj, :k_proj, :v_proj, :out_proj)

"""
    states(layer)

Return Lux's initial states. Dropout uses this session's generator and advances it, like Flux's: Lux's `replicate` copies any other
generator for each layer, but not this one (`LuxCore.jl`).
"""
states(layer::Union{Chain, Parallel}) = name_layers(map(states, layer.layers))
states(layer::SkipConnection) = states(layer.layers)
states(layer::BatchNorm) = (running_mean = copy(layer.μ), running_var = copy(layer.σ²), training = Val(true))
states(layer) = Lux.initialstates(Random.default_rng(), to_lux(layer))

"""
    with_statistics(layer, states)

Return the states with the chain's running statistics.
"""
with_statistics(layer::Union{Chain, Parallel}, old) = NamedTuple{keys(old)}(map(with_statistics, layer.layers, values(old)))
with_statistics(layer::SkipConnection, old) = with_statistics(layer.layers, old)
with_statistics(layer::BatchNorm, old) = (running_mean = copy(layer.μ), running_var = copy(layer.σ²), old.training)
with_statistics(_, old) = old

save_statistics!(layer::Union{Chain, Parallel}, new) = foreach(save_statistics!, layer.layers, values(new))
save_statistics!(layer::SkipConnection, new) = save_statistics!(layer.layers, new)
save_statistics!(layer::BatchNorm, new) = (copyto!(layer.μ, new.running_mean); copyto!(layer.σ², new.running_var); nothing)
save_statistics!(_, _) = nothing

"""
    to_flux(layer, gradient)

Convert Lux's gradient to the structure of Flux's.
"""
to_flux(layer::Union{Chain, Parallel}, gradient) = (layers = map(to_flux, layer.layers, values(gradient)),)
to_flux(layer::SkipConnection, gradient) = (layers = to_flux(layer.layers, gradient),)
to_flux(::BatchNorm, gradient) = (γ = gradient.scale, β = gradient.bias)
to_flux(::LayerNorm, gradient) = (diag = (scale = gradient.layer_2.weight, bias = get(gradient.layer_2, :bias, nothing)),)
to_flux(::GroupNorm, gradient) = (γ = gradient.scale, β = gradient.bias)
to_flux(::SelfAttention, gradient) = (attention = gradient.layer_1,)
to_flux(::Patches, gradient) = (conv = gradient.layer_1,)
to_flux(::Union{Chain, Parallel, SkipConnection}, ::Nothing) = nothing  # no weights
to_flux(_, gradient) = gradient

"""
    PolyBench.record(train, file, train_state; steps)
    PolyBench.step!(trace, train_state; loss, gradient, batch)

Record a training with Lux. Each step returns another `TrainState`, which `step!` gets:

    PolyBench.record("lux.trace", train_state) do trace
        for batch in batches
            gradient, loss, _, train_state = Training.single_train_step!(AutoZygote(), loss_function, batch, train_state)
            PolyBench.step!(trace, train_state; loss, batch, gradient)
        end
    end
"""
PolyBench.record(train, file::AbstractString, train_state::Training.TrainState; options...) =
    PolyBench.record(train, file, train_state, train_state.optimizer_state; options...)

function PolyBench.step!(trace::PolyBench.Recorder, train_state::Training.TrainState; options...)
    trace.model, trace.state = train_state, train_state.optimizer_state
    return PolyBench.step!(trace; options...)
end

PolyBench.recorded_framework(::Training.TrainState) = "lux", pkgversion(Lux)
PolyBench.weights_by_name(train_state::Training.TrainState) = PolyBench.named_arrays(train_state.parameters)
PolyBench.states(train_state::Training.TrainState) = train_state.states

end
