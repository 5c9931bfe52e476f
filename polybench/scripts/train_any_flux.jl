# Train `lenet` in plain Flux: the training that polybench times, without polybench.
#
#     julia --threads=JULIA_THREADS THIS_FILE initial_state.npz FOLDER
#
# The initial weights are in the .npz file beside this one. initial_state.npz has the numbers of each batch's inputs.
#: if images
# FOLDER has images in CIFAR-10's format, `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds
# and losses of steps.
#: if tokens
# FOLDER has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
# Needs the packages Flux and NPZ.

#: if clock
const CLOCK = [("process", time_ns() / 1e9)]  # the system's monotonic clock
clock(phase) = push!(CLOCK, (phase, time_ns() / 1e9))

#: end
using Flux, NPZ
using Flux.Optimisers: Leaf
using LinearAlgebra: BLAS
#: if clock
clock("import")
#: end

const DEVICE = "cpu"
const JULIA_THREADS = 2
const BLAS_THREADS = 1
const TF32 = false
#: if images
const SHAPE = [3, 32, 32]
#: end
const CLASSES = 10
const LEARNING_RATE = 0.01
#: if cosine
const WARMUP_STEPS = 0
const COSINE_STEPS = 1000
const MIN_LEARNING_RATE = 0.0
#: if velocity
const MOMENTUM = 0.9
#: if betas
const BETAS = [0.9, 0.999]
#: end
const WEIGHT_DECAY = 0.0
#: if clip
const GRADIENT_CLIP = 1.0
#: if smoothing
const LABEL_SMOOTHING = 0.1
#: end
const UNTIMED_STEPS = 2
const STEPS = 58

DEVICE == "cpu" || error("this script trains on the CPU")
Threads.nthreads() == JULIA_THREADS || error("start julia with --threads=$JULIA_THREADS")
BLAS.set_num_threads(BLAS_THREADS)

# <network>

start, folder = npzread(ARGS[1]), ARGS[2]
one_hot(labels) = Flux.onehotbatch(labels, 0:(CLASSES - 1))
#: if images
# The format of the official files: 1 byte label, then the planes of an image.
records = reshape(reduce(vcat, [read(joinpath(folder, "data_batch_$n.bin")) for n in 1:5]), 1 + prod(SHAPE), :)
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    # (width, height, channels, batch)
    (reshape(Float32.(records[2:end, indices]) ./ 255f0, reverse(SHAPE)..., :), one_hot(records[1, indices]))
end
#: if tokens
tokens, labels = (npzread(joinpath(folder, "$name.npy")) for name in ("tokens", "labels"))
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    # (time, batch), with indices from 1; labels of each sequence, or of each of its positions.
    targets = ndims(labels) == 1 ? labels[indices] : permutedims(labels[indices, :])
    (permutedims(Int.(tokens[indices, :]) .+ 1), one_hot(targets))
end
#: if clock
clock("data")
#: end

#: if sgd
rule = OptimiserChain(WeightDecay(WEIGHT_DECAY), Descent(LEARNING_RATE))
#: if momentum
rule = OptimiserChain(WeightDecay(WEIGHT_DECAY), Momentum(LEARNING_RATE, MOMENTUM))
#: if nesterov
rule = OptimiserChain(WeightDecay(WEIGHT_DECAY), Nesterov(LEARNING_RATE, MOMENTUM))
#: if adam
rule = OptimiserChain(WeightDecay(WEIGHT_DECAY), Adam(LEARNING_RATE, Tuple(BETAS)))
#: if adamw
rule = AdamW(LEARNING_RATE, Tuple(BETAS), WEIGHT_DECAY)
#: end
state = Flux.setup(rule, network)
#: if adamw

# Biases, weights of norms and class tokens do not decay.
decay_matrices_only!(leaf::Leaf) = ndims(first(leaf.state)) > 1 || Flux.adjust!(leaf; lambda = 0.0)
decay_matrices_only!(branch::Union{Tuple, NamedTuple}) = foreach(decay_matrices_only!, branch)
decay_matrices_only!(_) = nothing
decay_matrices_only!(state)
#: if cosine

# A warm-up, then half a cosine.
function learning_rate(step)
    step < WARMUP_STEPS && return LEARNING_RATE * (step + 1) / (WARMUP_STEPS + 1)
    progress = min(1.0, (step - WARMUP_STEPS) / (COSINE_STEPS - WARMUP_STEPS))
    return MIN_LEARNING_RATE + (1 + cos(pi * progress)) / 2 * (LEARNING_RATE - MIN_LEARNING_RATE)
end
#: if velocity cosine

# Flux's velocity has the rate as a factor.
rescale!(leaf::Leaf, factor) = last(leaf.state) .*= Float32(factor)
rescale!(branch::Union{Tuple, NamedTuple}, factor) = foreach(value -> rescale!(value, factor), branch)
rescale!(_, _) = nothing
#: if clip

# A layer that shares its array has the same leaf, and a gradient of its own; their sum counts.
function add_gradients!(sums, state, gradient)
    gradient === nothing && return nothing
    if state isa Leaf
        sums[state] = haskey(sums, state) ? sums[state] + gradient : gradient
    elseif state isa Union{Tuple, NamedTuple}
        foreach(key -> add_gradients!(sums, state[key], gradient[key]), keys(state))
    end
    return nothing
end

scaled(array::AbstractArray, factor) = factor .* array
scaled(branch::Union{Tuple, NamedTuple}, factor) = map(value -> scaled(value, factor), branch)
scaled(other, _) = other

# Multiply the gradients with the same factor, so that their norm is at most GRADIENT_CLIP.
function clip(state, gradient)
    sums = IdDict{Any, Any}()
    add_gradients!(sums, state, gradient)
    norm = sqrt(sum(array -> sum(abs2, array), values(sums)))
    return scaled(gradient, min(1f0, Float32(GRADIENT_CLIP) / (norm + 1f-6)))
end
#: end

#: if clock
clock("build")
#: end
# One step; returns the loss before the update.
function train_step!(model, state, step, inputs, targets)
#: if cosine
    Flux.adjust!(state, learning_rate(step))
#: if velocity cosine
    step > 0 && rescale!(state, learning_rate(step) / learning_rate(step - 1))
#: end
#: if smoothing
    targets = Flux.label_smoothing(targets, Float32(LABEL_SMOOTHING))
#: end
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(inputs), targets), model)
    gradient = gradients[1]
#: if clip
    gradient = clip(state, gradient)
#: end
    Flux.update!(state, model, gradient)
    return loss
end

function train!(model, state, batches)
    seconds, losses = Float64[], Float32[]
    for (step, (inputs, targets)) in enumerate(batches)
        begun = time_ns()
        loss = train_step!(model, state, step - 1, inputs, targets)
        push!(seconds, (time_ns() - begun) / 1e9)
        push!(losses, loss)
#: if clock
        length(losses) > 2 || clock(("first_step", "second_step")[length(losses)])
#: end
    end
    return seconds, losses
end

seconds, losses = train!(network, state, batches)
timed = seconds[(UNTIMED_STEPS + 1):end]
println("{\"step_seconds\": [", join(timed, ", "), "], \"losses\": [", join(losses, ", "), "]}")
#: if clock
phases = ["[\"$phase\", $seconds]" for (phase, seconds) in CLOCK]
println("{\"clock\": [", join(phases, ", "), "], \"losses\": [", join(losses, ", "), "]}")
#: end
