# Trainings in Flux, recorded by PolyBench: julia flux_program.jl FOLDER, which has weights and batches as raw numbers.
using Flux, PolyBench

const FOLDER = only(ARGS)
load(T, name, shape...) = reshape(collect(reinterpret(T, read(joinpath(FOLDER, name)))), shape)
weights(name, shape...) = load(Float32, name, shape...)
kernel(name, shape...) = reverse(weights(name, shape...); dims = (1, 2))

function train(name, momentum)
    norm = BatchNorm(6, relu)
    norm.γ .= weights("norm.weight", 6)
    norm.β .= weights("norm.bias", 6)
    model = Chain(
        Conv(kernel("conv1.weight", 3, 3, 3, 6), weights("conv1.bias", 6); pad = 1),
        norm,
        MeanPool((2, 2)),  # MaxPool's gradient goes to the first almost equal value: NNlib differs from PyTorch there
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

train("flux.trace", 0.9)
train("other.trace", 0.8)
train_deep()
refuse_complex()
