# Tests of a program of Lux, if the environment has Lux: it shares a table, and has batch norm and given dropout masks.
using Flux, Lux, PolyBench, Random, Test

module LuxProgram

using Flux: Flux, Zygote
using Lux
using Lux: Optimisers
using PolyBench: PolyBench
using Random

const DTYPE = Float64
const DEVICE = "cpu"
const SEED = 3

mutable struct Masked <: AbstractLuxLayer
    mask::AbstractArray
end

Lux.initialstates(::AbstractRNG, ::Masked) = (; training = Val(true))
(layer::Masked)(x, ps, st) = (st.training isa Val{true} ? x .* layer.mask : x, st)

struct Transposed <: AbstractLuxLayer end

Lux.initialparameters(::AbstractRNG, ::Transposed) = (; weight = zeros32(2, 3))
(::Transposed)(x, ps, st) = transpose(ps.weight) * x, st

network() = Chain(Dense(3 => 2), BatchNorm(2; epsilon = 1.0e-5, momentum = 0.1), Masked(zeros(0)), Transposed())

function tensors(train_state)
    ps, st = train_state.parameters, train_state.states
    return [
        "dense.weight" => transpose(ps.layer_1.weight), "dense.bias" => ps.layer_1.bias, "norm.weight" => ps.layer_2.scale,
        "norm.bias" => ps.layer_2.bias, "norm.running_mean" => st.layer_2.running_mean,
    ]
end

mutable struct State
    train_state::Training.TrainState
    step::Int
    rate::Float64
end

struct Forward{M, P, S}
    model::M
    parameters::P
    states::S
end

function variables()
    Random.seed!(SEED)
    model = network()
    parameters, states = f64(Lux.setup(Random.default_rng(), model))
    return model, Lux.Experimental.share_parameters(parameters, (("layer_1.weight", "layer_4.weight"),)), states
end

make_train_state(variables...) = Training.TrainState(variables..., Optimisers.Momentum(0.1, 0.9))
setup() = State(make_train_state(variables()...), 0, 0.1)

function reset!(state, weights)
    for (name, array) in tensors(state.train_state)
        array .= weights[name]
    end
    (; model, parameters, states) = state.train_state
    state.train_state = make_train_state(model, parameters, states)
    state.step, state.rate = 0, 0.1
    Random.seed!(SEED)
    return nothing
end

load(features, labels) = convert(Array{DTYPE}, features), Flux.onehotbatch(labels, 0:2)
const compute_loss = CrossEntropyLoss(; logits = Val(true))
set_masks!(state, masks) = (state.train_state.model.layers[3].mask = masks["dropout"]; nothing)

function train_step!(state, (inputs, targets, masks))
    set_masks!(state, masks)
    state.rate = state.step < 1 ? 0.1 : 0.05
    Optimisers.adjust!(state.train_state.optimizer_state, state.rate)
    _, loss, _, train_state = Training.single_train_step!(AutoZygote(), compute_loss, (inputs, targets), state.train_state)
    state.train_state = train_state
    state.step += 1
    return loss
end

forward_pass(state, batch) = first(state.model(first(batch), state.parameters, state.states))
weights(state) = Dict(name => Array(array) for (name, array) in tensors(PolyBench.trained(state)))

end

@testset "a program of Lux" begin
    inputs, labels = rand(MersenneTwister(1), Float32, 3, 4, 2), rand(MersenneTwister(2), 0:2, 4, 2)
    names = ["dense.weight", "dense.bias", "norm.weight", "norm.bias", "norm.running_mean"]
    trainer = PolyBench.ProgramTrainer(LuxProgram, PolyBench.StepMode(), names)
    batches = PolyBench.batches(trainer, inputs, labels)
    PolyBench.set_masks!(trainer, Dict("dropout" => [2.0 0.0 2.0 2.0; 0.0 2.0 2.0 0.0]))
    state = trainer.state

    @testset "its gradients are those of the loss by name, and its statistics stay" begin
        loss, gradients, weights = PolyBench.loss_and_gradients(trainer, batches, 1)
        @test weights == LuxProgram.weights(state)
        changed(name, index, change) = merge(weights, Dict(name => (copied = copy(weights[name]); copied[index] += change; copied)))
        function loss_at(weights)
            LuxProgram.reset!(state, weights)
            return first(PolyBench.loss_and_gradients(trainer, batches, 1))
        end
        @test loss == loss_at(weights)
        for name in names[1:4], index in eachindex(weights[name])
            difference = loss_at(changed(name, index, 1.0e-6)) - loss_at(changed(name, index, -1.0e-6))
            @test gradients[name][index] ≈ difference / 2.0e-6 atol = 1.0e-8
        end
    end

    @testset "it continues from a saved state" begin
        PolyBench.reset!(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 2)
        saved = PolyBench.training_state(trainer)
        @test saved.rate == 0.05
        PolyBench.run_steps!(trainer, batches, 2, 1)
        expected = PolyBench.last_loss(trainer)
        PolyBench.reset!(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 1)
        PolyBench.restore!(trainer, saved)
        PolyBench.run_steps!(trainer, batches, 2, 1)
        @test PolyBench.last_loss(trainer) == expected
    end

    @testset "its logits are those of inference, also in a forward pass" begin
        (; model, parameters, states) = state.train_state
        logits = PolyBench.inference_logits(trainer, inputs[:, :, 1])
        forward = LuxProgram.Forward(model, parameters, Lux.testmode(states))
        @test logits == LuxProgram.forward_pass(forward, (inputs[:, :, 1], nothing))
        @test LuxProgram.weights(forward) == LuxProgram.weights(state)
    end
end
