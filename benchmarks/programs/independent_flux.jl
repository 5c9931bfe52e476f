# Trains three CIFAR-10 networks in Flux on random images; written independently of polybench and its scripts.
#
#     julia --threads=N --project=... independent_flux.jl lenet|dlframeworks-cnn|resnet32 BATCH_SIZE THREADS STEPS
#
# Trains STEPS steps for each line on standard input, and prints their median time as JSON.
using Flux, Statistics
using LinearAlgebra: BLAS

lenet() = Chain(
    Conv((5, 5), 3 => 16, relu),
    MaxPool((2, 2)),
    Conv((5, 5), 16 => 8, relu),
    MaxPool((2, 2)),
    Flux.flatten,
    Dense(200 => 120),
    Dense(120 => 84),
    Dense(84 => 10),
)

dlframeworks_cnn() = Chain(
    Conv((3, 3), 3 => 50, relu; pad = 1),
    Conv((3, 3), 50 => 50; pad = 1),
    MaxPool((2, 2)),
    x -> relu.(x),
    Dropout(0.25),
    Conv((3, 3), 50 => 100, relu; pad = 1),
    Conv((3, 3), 100 => 100; pad = 1),
    MaxPool((2, 2)),
    x -> relu.(x),
    Dropout(0.25),
    Flux.flatten,
    Dense(6400 => 512, relu),
    Dropout(0.5),
    Dense(512 => 10),
)

function residual(channels::Pair)
    from, to = channels
    stride = from == to ? 1 : 2
    branch = Chain(
        Conv((3, 3), from => to; stride, pad = 1, bias = false),
        BatchNorm(to, relu),
        Conv((3, 3), to => to; pad = 1, bias = false),
        BatchNorm(to),
    )
    shortcut = stride == 1 ? identity : Conv((1, 1), from => to; stride, bias = false)
    return Chain(Parallel(+, branch, shortcut), x -> relu.(x))
end

function resnet32()
    widths = [16; fill(16, 5); fill(32, 5); fill(64, 5)]
    blocks = [residual(widths[i] => widths[i+1]) for i in 1:15]
    return Chain(
        Conv((3, 3), 3 => 16; pad = 1, bias = false),
        BatchNorm(16, relu),
        blocks...,
        GlobalMeanPool(),
        Flux.flatten,
        Dense(64 => 10),
    )
end

function train!(model, state, data)
    return map(data) do (x, y)
        @elapsed begin
            gradients = Flux.gradient(m -> Flux.logitcrossentropy(m(x), y), model)
            Flux.update!(state, model, gradients[1])
        end
    end
end

function main(name, batchsize, threads, steps)
    Threads.nthreads() == threads || error("start julia with --threads=$threads")
    threads > 1 && BLAS.set_num_threads(1)  # each of Flux's threads calls BLAS
    model = Dict("lenet" => lenet, "dlframeworks-cnn" => dlframeworks_cnn, "resnet32" => resnet32)[name]()
    state = Flux.setup(Momentum(0.01, 0.9), model)
    data = [(rand(Float32, 32, 32, 3, batchsize), Flux.onehotbatch(rand(0:9, batchsize), 0:9)) for _ = 1:steps]
    for _ in eachline(stdin)
        println("{\"median_step_seconds\": $(median(train!(model, state, data)))}")
        flush(stdout)
    end
end

main(ARGS[1], parse.(Int, ARGS[2:4])...)
