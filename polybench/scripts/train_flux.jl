# Train `lenet` on CIFAR-10 in plain Flux: the training that polybench times, without polybench.
#
#     julia --threads=JULIA_THREADS THIS_FILE initial_state.npz FOLDER
#
# initial_state.npz comes from `polybench weights`: initial weights, and the images of each batch. FOLDER
# has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
# Needs the packages Flux and NPZ.

using Flux, NPZ
using LinearAlgebra: BLAS

include("lenet_flux.jl")

const DEVICE = "cpu"
const JULIA_THREADS = 2
const BLAS_THREADS = 1
const TF32 = false
const LEARNING_RATE = 0.01
const MOMENTUM = 0.9
const UNTIMED_STEPS = 2
const STEPS = 58

DEVICE == "cpu" || error("this script trains on the CPU")
Threads.nthreads() == JULIA_THREADS || error("start julia with --threads=$JULIA_THREADS")
BLAS.set_num_threads(BLAS_THREADS)

# The format of the official files: 1 byte label, then red, green and blue planes.
start, folder = npzread(ARGS[1]), ARGS[2]
records = reshape(reduce(vcat, [read(joinpath(folder, "data_batch_$n.bin")) for n in 1:5]), 3073, :)
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    images = reshape(Float32.(records[2:end, indices]) ./ 255f0, 32, 32, 3, :)  # width, height, channels, batch
    (images, Flux.onehotbatch(records[1, indices], 0:9))
end

# initial_state.npz has (out, in, kernel height, kernel width). Flux has (width, height, in, out), and flips the kernel.
kernel(name) = reverse(permutedims(start["$name.weight"], (4, 3, 2, 1)); dims = (1, 2))
matrix(name) = start["$name.weight"]
bias(name) = start["$name.bias"]
model = network()
state = Flux.setup(Momentum(LEARNING_RATE, MOMENTUM), model)

# One step; returns the loss before the update.
function train_step!(model, state, images, labels)
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), model)
    Flux.update!(state, model, gradients[1])
    return loss
end

function train!(model, state, batches)
    seconds, losses = Float64[], Float32[]
    for (images, labels) in batches
        begun = time_ns()
        loss = train_step!(model, state, images, labels)
        push!(seconds, (time_ns() - begun) / 1e9)
        push!(losses, loss)
    end
    return seconds, losses
end

seconds, losses = train!(model, state, batches)
timed = seconds[(UNTIMED_STEPS + 1):end]
println("{\"step_seconds\": [", join(timed, ", "), "], \"losses\": [", join(losses, ", "), "]}")
