# Trains the same network as polybench in Julia, without Python, and prints the same losses.
#
#     polybench export --weights --data FOLDER --steps 60 --output initial_state.npz
#     julia --project=. --threads=2 examples/flux_by_hand.jl initial_state.npz FOLDER
#
# FOLDER contains CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. The environment is the repository's Project.toml:
#     julia --project=. -e 'using Pkg; Pkg.instantiate()'

using LinearAlgebra: BLAS
using NPZ, PolyBench

function main(start_file, folder)
    # NNlib runs one task per Julia thread, and each calls BLAS: with several BLAS threads they would wait for each other.
    Threads.nthreads() > 1 && BLAS.set_num_threads(1)
    start = npzread(start_file)
    # The file has C order. In Julia's order, the same values have all axes reversed.
    canonical(array) = permutedims(array, ndims(array):-1:1)
    records = PolyBench.model(:lenet).records
    weights = Dict(name => canonical(start[name]) for (name, _) in PolyBench.tensor_shapes(records))

    dataset = PolyBench.cifar10(folder)
    order = permutedims(start["batches"]) .+ 1  # (batch, steps), indices from 1
    pixels = reshape(dataset.images[:, :, :, vec(order)] ./ 255.0f0, 32, 32, 3, size(order)...)
    labels = dataset.labels[order]

    device = PolyBench.device("cpu")
    trainer = PolyBench.Trainer(device, Float32, records, weights; learning_rate = 0.01, momentum = 0.9)
    batches = PolyBench.batches(device, Float32, pixels, labels, 10)
    for step in 0:(length(batches) - 1)
        seconds = PolyBench.run_steps!(trainer, batches, step, 1)
        println("step $step: loss $(trainer.loss), $(round(1000 * seconds; digits = 1)) ms")
    end
    (count, bytes), _ = PolyBench.count_allocations!(trainer, batches, 0, length(batches))
    println("an epoch of $(length(batches)) more steps: $count allocations, $bytes bytes")
end

main(ARGS...)
