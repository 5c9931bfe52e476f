# Train `lenet` in plain Flux: the training that polybench times, without polybench.
#
#     julia --threads=JULIA_THREADS THIS_FILE initial_state.npz FOLDER
#
#: if images
# initial_state.npz comes from `polybench export --weights`: initial weights, and the images of each batch. FOLDER
# has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
#: if tokens
# initial_state.npz comes from `polybench export --weights`: initial weights, and the sequences of each batch. FOLDER
# has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
# Needs the packages Flux and NPZ.

#: if clock
const CLOCK = [("process", time_ns() / 1e9)]  # the system's monotonic clock
clock(phase) = push!(CLOCK, (phase, time_ns() / 1e9))

#: end
using Flux, NPZ
using LinearAlgebra: BLAS
#: if clock
clock("import")
#: end

#: if lenet
# The CNN of Flux's tutorial.
network() = Chain(
    Conv(kernel("conv1"), bias("conv1"), relu), MaxPool((2, 2)),
    Conv(kernel("conv2"), bias("conv2"), relu), MaxPool((2, 2)), Flux.flatten,
    Dense(matrix("dense1"), bias("dense1")), Dense(matrix("dense2"), bias("dense2")),
    Dense(matrix("dense3"), bias("dense3")),
)
#: if dlframeworks-cnn
# The CNN of the DeepLearningFrameworks comparison.
network() = Chain(
    Conv(kernel("conv1"), bias("conv1"), relu; pad = SamePad()),
    Conv(kernel("conv2"), bias("conv2"); pad = SamePad()),
    MaxPool((2, 2)), x -> relu.(x), Dropout(0.25),
    Conv(kernel("conv3"), bias("conv3"), relu; pad = SamePad()),
    Conv(kernel("conv4"), bias("conv4"); pad = SamePad()),
    MaxPool((2, 2)), x -> relu.(x), Dropout(0.25), Flux.flatten,
    Dense(matrix("dense1"), bias("dense1"), relu), Dropout(0.5), Dense(matrix("dense2"), bias("dense2")),
)
#: if resnet32
# Batch norm with explicit constants. It starts as in initial_state.npz: weight and variance 1, bias and mean 0.
norm(channels, activation = identity) = BatchNorm(channels, activation; eps = 1f-5, momentum = 0.1f0)

# The basic residual block; with a stride, a 1x1 convolution brings the shortcut to the shape of the body.
function block(name, channels, stride)
    body = Chain(
        Conv(kernel("$name.conv1"), false; stride, pad = 1), norm(channels, relu),
        Conv(kernel("$name.conv2"), false; pad = 1), norm(channels),
    )
    stride == 1 && return SkipConnection(body, +)
    return Parallel(+, body, Conv(kernel("$name.projection"), false; stride))
end

# 5 blocks, each with the ReLU after it.
stage(number, channels, stride) = mapreduce(vcat, 1:5) do n
    [block("stage$number.block$n", channels, n == 1 ? stride : 1), x -> relu.(x)]
end

# The CIFAR-10 ResNet of 32 layers, post-activation.
network() = Chain(
    Conv(kernel("conv1"), false; pad = 1), norm(16, relu),
    stage(1, 16, 1)..., stage(2, 32, 2)..., stage(3, 64, 2)...,
    GlobalMeanPool(), Flux.flatten, Dense(matrix("dense"), bias("dense")),
)
#: if imdb-bilstm
# initial_state.npz has Flux's layout, except that Flux stores a token's row of the embedding as a column.
lstm(way) = LSTM(LSTMCell(start["lstm.$(way)weight"], start["lstm.$(way)recurrent"], start["lstm.$(way)bias"]))
from_the_end(x) = reverse(x; dims = 2)  # x is (features, time, batch)
last_output(x) = x[:, end, :]

# The IMDb example of Keras 2: LSTMs in both directions over embedded words.
network() = Chain(
    Embedding(permutedims(start["embedding.weight"])),
    Parallel(vcat, Chain(lstm(""), last_output), Chain(from_the_end, lstm("reverse_"), last_output)),
    Dropout(0.5), Dense(start["dense.weight"], start["dense.bias"]),
)
#: end

const DEVICE = "cpu"
const JULIA_THREADS = 2
const BLAS_THREADS = 1
const TF32 = false
const LEARNING_RATE = 0.01
#: if images
const MOMENTUM = 0.9
#: end
const UNTIMED_STEPS = 2
const STEPS = 58

DEVICE == "cpu" || error("this script trains on the CPU")
Threads.nthreads() == JULIA_THREADS || error("start julia with --threads=$JULIA_THREADS")
BLAS.set_num_threads(BLAS_THREADS)

start, folder = npzread(ARGS[1]), ARGS[2]
#: if images
# The format of the official files: 1 byte label, then red, green and blue planes.
records = reshape(reduce(vcat, [read(joinpath(folder, "data_batch_$n.bin")) for n in 1:5]), 3073, :)
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    images = reshape(Float32.(records[2:end, indices]) ./ 255f0, 32, 32, 3, :)  # width, height, channels, batch
    (images, Flux.onehotbatch(records[1, indices], 0:9))
end
#: if images clock
clock("data")
#: if images

# initial_state.npz has (out, in, kernel height, kernel width). Flux has (width, height, in, out), and flips the kernel.
kernel(name) = reverse(permutedims(start["$name.weight"], (4, 3, 2, 1)); dims = (1, 2))
matrix(name) = start["$name.weight"]
bias(name) = start["$name.bias"]
model = network()
state = Flux.setup(Momentum(LEARNING_RATE, MOMENTUM), model)
#: if images clock
clock("build")
#: if tokens
tokens, labels = (npzread(joinpath(folder, "$name.npy")) for name in ("tokens", "labels"))
batches = map(1:(UNTIMED_STEPS + STEPS)) do step
    indices = start["batches"][step, :] .+ 1
    # (time, batch), with indices from 1.
    (permutedims(Int.(tokens[indices, :]) .+ 1), Flux.onehotbatch(labels[indices], 0:1))
end
#: if tokens clock
clock("data")
#: if tokens

model = network()
state = Flux.setup(Adam(LEARNING_RATE), model)
#: if tokens clock
clock("build")
#: end

# One step; returns the loss before the update.
function train_step!(model, state, inputs, labels)
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(inputs), labels), model)
    Flux.update!(state, model, gradients[1])
    return loss
end

function train!(model, state, batches)
    seconds, losses = Float64[], Float32[]
    for (inputs, labels) in batches
        begun = time_ns()
        loss = train_step!(model, state, inputs, labels)
        push!(seconds, (time_ns() - begun) / 1e9)
        push!(losses, loss)
#: if clock
        length(losses) > 2 || clock(("first_step", "second_step")[length(losses)])
#: end
    end
    return seconds, losses
end

seconds, losses = train!(model, state, batches)
timed = seconds[(UNTIMED_STEPS + 1):end]
println("{\"step_seconds\": [", join(timed, ", "), "], \"losses\": [", join(losses, ", "), "]}")
#: if clock
phases = ["[\"$phase\", $seconds]" for (phase, seconds) in CLOCK]
println("{\"clock\": [", join(phases, ", "), "], \"losses\": [", join(losses, ", "), "]}")
#: end
