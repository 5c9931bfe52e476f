# Trains as in Flux's documentation: a Chain, a DataLoader, `Flux.train!`.
#
#     julia --threads=N --project=... flux_loader.jl IMAGES BATCH_SIZE WORKERS HOW
#
# The arguments are those of pytorch_loader.py; WORKERS has no effect. Prints means per step of the second epoch.
using Flux

faults() = parse(Int, split(last(split(read("/proc/self/stat", String), ")")))[8])

function main(images, batchsize, how)
    pixels = how == "list" ? stack([rand(Float32, 32, 32, 3) for _ = 1:images]) : rand(Float32, 32, 32, 3, images)
    labels = Flux.onehotbatch(rand(0:9, images), 0:9)
    loader = Flux.DataLoader((pixels, labels); batchsize, shuffle = true)
    model = Chain(
        Conv((5, 5), 3 => 6, relu),
        MaxPool((2, 2)),
        Conv((5, 5), 6 => 16, relu),
        MaxPool((2, 2)),
        Flux.flatten,
        Dense(400 => 120, relu),
        Dense(120 => 84, relu),
        Dense(84 => 10),
    )
    state = Flux.setup(Momentum(0.001, 0.9), model)
    loss(m, x, y) = Flux.logitcrossentropy(m(x), y)
    Flux.train!(loss, model, loader, state)
    before, start = faults(), time()
    Flux.train!(loss, model, loader, state)
    steps = length(loader)
    println("{\"step_seconds\": [$((time() - start) / steps)], \"page_faults\": [$((faults() - before) / steps)]}")
end

main(parse(Int, ARGS[1]), parse(Int, ARGS[2]), ARGS[4])
