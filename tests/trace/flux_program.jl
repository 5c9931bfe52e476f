# Trainings recorded by PolyBench: julia flux_program.jl FOLDER FRAMEWORK. The folder has weights and batches as raw numbers.
using Flux, PolyBench, Random

const FOLDER, FRAMEWORK = ARGS
FRAMEWORK == "lux" && @eval using Lux: Lux

load(T, name, shape...) = reshape(collect(reinterpret(T, read(joinpath(FOLDER, name)))), shape)
weights(name, shape...) = load(Float32, name, shape...)
kernel(name, shape...) = reverse(weights(name, shape...); dims = (1, 2))

# With MaxPool, whose gradient goes to the first almost equal value, NNlib differs from PyTorch.
function train(name; momentum = 0.9, pool = MeanPool((2, 2)))
    norm = BatchNorm(6, relu)
    norm.γ .= weights("norm.weight", 6)
    norm.β .= weights("norm.bias", 6)
    model = Chain(
        Conv(kernel("conv1.weight", 3, 3, 3, 6), weights("conv1.bias", 6); pad = 1),
        norm,
        pool,
        Conv(kernel("conv2.weight", 3, 3, 6, 8), weights("conv2.bias", 8), relu),
        GlobalMeanPool(),
        Flux.flatten,
        Dense(permutedims(weights("dense1.weight", 8, 20)), weights("dense1.bias", 20), gelu_erf),
        Dense(permutedims(weights("dense2.weight", 20, 5)), weights("dense2.bias", 5)),
    )
    state = Flux.setup(OptimiserChain(WeightDecay(0.01), Momentum(0.05, momentum)), model)
    PolyBench.record(joinpath(FOLDER, name), model, state) do trace
        for step in 0:10
            images = load(Float32, "images$step", 8, 8, 3, 16)
            labels = Flux.onehotbatch(load(Int64, "labels$step", 16), 0:4)
            loss, (gradient,) = Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), model)
            Flux.update!(state, model, gradient)
            PolyBench.step!(trace; loss, batch = (images, labels), gradient)
        end
    end
    return nothing
end

"Train a chain in 20 others: its names are longer than those of a tar archive."
function train_deep()
    model = foldl((inner, _) -> Chain(inner), 1:20; init = Dense(2 => 1))
    state = Flux.setup(Descent(0.1), model)
    PolyBench.record(joinpath(FOLDER, "deep.trace"), model, state; steps = [1]) do trace
        for _ in 1:3
            loss, (gradient,) = Flux.withgradient(m -> sum(m(ones(Float32, 2))), model)
            Flux.update!(state, model, gradient)
            PolyBench.step!(trace; loss, gradient)
        end
    end
    return nothing
end

"A model with complex weights is refused, and nothing of the file remains."
function refuse_complex()
    model = Dense(ones(ComplexF32, 1, 2))
    try
        PolyBench.record(identity, joinpath(FOLDER, "complex.trace"), model, Flux.setup(Descent(), model))
    catch failure
        failure isa ArgumentError || rethrow()
        return nothing
    end
    error("complex weights were recorded")
end

"The same training in Lux."
function train_lux()
    model = Lux.Chain(
        Lux.Conv((3, 3), 3 => 6; pad = 1), Lux.BatchNorm(6, relu), Lux.MeanPool((2, 2)), Lux.Conv((3, 3), 6 => 8, relu),
        Lux.GlobalMeanPool(), Lux.FlattenLayer(), Lux.Dense(8 => 20, gelu_erf), Lux.Dense(20 => 5),
    )
    parameters, states = Lux.setup(Random.default_rng(), model)
    parameters = (;
        parameters...,
        layer_1 = (weight = kernel("conv1.weight", 3, 3, 3, 6), bias = weights("conv1.bias", 6)),
        layer_2 = (scale = weights("norm.weight", 6), bias = weights("norm.bias", 6)),
        layer_4 = (weight = kernel("conv2.weight", 3, 3, 6, 8), bias = weights("conv2.bias", 8)),
        layer_7 = (weight = permutedims(weights("dense1.weight", 8, 20)), bias = weights("dense1.bias", 20)),
        layer_8 = (weight = permutedims(weights("dense2.weight", 20, 5)), bias = weights("dense2.bias", 5)),
    )
    rule = OptimiserChain(WeightDecay(0.01), Momentum(0.05, 0.9))
    state = Lux.Training.TrainState(model, parameters, states, rule)
    PolyBench.record(joinpath(FOLDER, "lux.trace"), state) do trace
        for step in 0:10
            images = load(Float32, "images$step", 8, 8, 3, 16)
            batch = (images, Flux.onehotbatch(load(Int64, "labels$step", 16), 0:4))
            loss_function = Lux.CrossEntropyLoss(; logits = Val(true))
            gradient, loss, _, state = Lux.Training.single_train_step!(Lux.AutoZygote(), loss_function, batch, state)
            PolyBench.step!(trace, state; loss, batch, gradient)
        end
    end
    return nothing
end

if FRAMEWORK == "lux"
    train_lux()
else
    train("flux.trace")
    train("other.trace"; momentum = 0.8)
    train("max_pool.trace"; pool = MaxPool((2, 2)))
    train_deep()
    refuse_complex()
end
