# Train `imdb-bilstm` on tokens in plain Flux: the training that polybench times, without polybench.
#
#     julia --threads=JULIA_THREADS THIS_FILE initial_state.npz FOLDER
#
# initial_state.npz comes from `polybench weights`: initial weights, and the sequences of each batch. FOLDER
# has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
# Needs the packages Flux and NPZ.

using Flux, NPZ
using LinearAlgebra: BLAS

include("imdb_bilstm_flux.jl")

const DEVICE = "cpu"
const JULIA_THREADS = 2
const BLAS_THREADS = 1
const TF32 = false
const LEARNING_RATE = 0.001
const UNTIMED_STEPS = 2
const STEPS = 58

DEVICE == "cpu" || error("this script trains on the CPU")
Threads.nthreads() == JULIA_THREADS || error("start julia with --threads=$JULIA_THREADS")
BLAS.set_num_threads(BLAS_THREADS)

start, folder = npzread(ARGS[1]), ARGS[2]
tokens, labels = (npzread(joinpath(folder, "$name.npy")) for name in ("tokens", "labels"))
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    # (time, batch), with indices from 1.
    (permutedims(Int.(tokens[indices, :]) .+ 1), Flux.onehotbatch(labels[indices], 0:1))
end

model = network()
state = Flux.setup(Adam(LEARNING_RATE), model)

# One step; returns the loss before the update.
function train_step!(model, state, tokens, labels)
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(tokens), labels), model)
    Flux.update!(state, model, gradients[1])
    return loss
end

function train!(model, state, batches)
    seconds, losses = Float64[], Float32[]
    for (tokens, labels) in batches
        begun = time_ns()
        loss = train_step!(model, state, tokens, labels)
        push!(seconds, (time_ns() - begun) / 1e9)
        push!(losses, loss)
    end
    return seconds, losses
end

seconds, losses = train!(model, state, batches)
timed = seconds[(UNTIMED_STEPS + 1):end]
println("{\"step_seconds\": [", join(timed, ", "), "], \"losses\": [", join(losses, ", "), "]}")
