# Trains the same network as polybench in Julia, without Python, and prints the same losses.
#
#     polybench export --weights --data FOLDER --steps 60 --output initial_state.npz
#     julia --project=. --threads=2 examples/flux_by_hand.jl initial_state.npz FOLDER
#
# FOLDER contains CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. The environment is the repository's Project.toml:
#     julia --project=. -e 'using Pkg; Pkg.instantiate()'

using Flux
using LinearAlgebra: BLAS
using NPZ
using PolyBench: cifar10

include(joinpath(@__DIR__, "..", "julia", "models", "lenet.jl"))  # `network`, and its arrays by name

function main(start_file, folder)
    # NNlib runs one task per Julia thread, and each calls BLAS: with several BLAS threads they would wait for each other.
    Threads.nthreads() > 1 && BLAS.set_num_threads(1)
    start = npzread(start_file)
    model = network()
    for (name, array) in tensors(model)
        # The file has C order. In Julia's order, the same values have all axes reversed.
        array .= permutedims(start[name], ndims(array):-1:1)
    end
    optimizer = Flux.setup(Momentum(0.01, 0.9), model)

    dataset = cifar10(folder)
    order = eachrow(start["batches"] .+ 1)  # (steps, batch), indices from 1
    batches = [
        (dataset.images[:, :, :, indices] ./ 255.0f0, Flux.onehotbatch(dataset.labels[indices], 0:9)) for indices in order
    ]
    for (step, batch) in enumerate(batches)
        loss = 0.0f0
        seconds = @elapsed loss = train_step!(model, optimizer, batch)
        println("step $(step - 1): loss $loss, $(round(1000 * seconds; digits = 1)) ms")
    end
    counted = @timed foreach(batch -> train_step!(model, optimizer, batch), batches)
    count = Base.gc_alloc_count(counted.gcstats)
    return println("an epoch of $(length(batches)) more steps: $count allocations, $(counted.bytes) bytes")
end

# Train on a batch; return the loss before the update.
function train_step!(model, optimizer, (images, labels))
    loss, gradients = Flux.withgradient(model -> Flux.logitcrossentropy(model(images), labels), model)
    Flux.update!(optimizer, model, gradients[1])
    return loss
end

main(ARGS...)
