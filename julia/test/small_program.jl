# A program as polybench prints them, with a table that two layers share, batch norm, a schedule, and given dropout masks. The module
# that includes it has the constant `DTYPE`.
using Flux
using Random

const DEVICE = "cpu"
const SEED = 3

mutable struct Masked
    mask::AbstractArray
end

Flux.@layer Masked trainable = ()

(layer::Masked)(x) = Flux.NNlib.within_gradient(x) ? x .* layer.mask : x

struct Transposed{W}
    weight::W
end

Flux.@layer Transposed

(layer::Transposed)(x) = transpose(layer.weight) * x

function network()
    dense = Dense(3 => 2)
    return Chain(dense, BatchNorm(2; eps = 1.0e-5, momentum = 0.1), Masked(zeros(0)), Transposed(dense.weight))
end

tensors(model) = [
    "dense.weight" => transpose(model[1].weight), "dense.bias" => model[1].bias,
    "norm.weight" => model[2].γ, "norm.bias" => model[2].β, "norm.running_mean" => model[2].μ,
]

mutable struct State{M, O}
    const model::M
    optimizer::O
    step::Int
    rate::Float64
end

function setup(weights = nothing)
    Random.seed!(SEED)
    model = (DTYPE == Float64 ? f64 : f32)(network())
    state = State(model, make_optimizer(model), 0, 0.1)
    weights === nothing || reset!(state, weights)
    return state
end

function reset!(state, weights, step = 0)
    for (name, array) in tensors(state.model)
        array .= weights[name]
    end
    state.step, state.rate = step, 0.1
    state.optimizer = make_optimizer(state.model)
    Random.seed!(SEED)
    return nothing
end

make_optimizer(model) = Flux.setup(Momentum(0.1, 0.9), model)
load(features, labels) = convert(Array{DTYPE}, features), Flux.onehotbatch(labels, 0:2)
compute_loss(model, inputs, targets) = Flux.logitcrossentropy(model(inputs), targets)
set_masks!(state, masks) = (state.model[3].mask = masks["dropout"]; nothing)

function train_step!(state, (inputs, targets, masks))
    set_masks!(state, masks)
    state.rate = state.step < 1 ? 0.1 : 0.05
    Flux.adjust!(state.optimizer, state.rate)
    loss, gradients = Flux.withgradient(model -> compute_loss(model, inputs, targets), state.model)
    Flux.update!(state.optimizer, state.model, gradients[1])
    state.step += 1
    return loss
end

train_steps!(state, batches) = last([train_step!(state, batch) for batch in batches])
forward_pass(state, batch) = Flux.testmode!(state.model)(first(batch))
weights(state) = Dict(name => Array(array) for (name, array) in tensors(state.model))
