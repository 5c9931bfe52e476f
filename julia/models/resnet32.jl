# resnet32 in Flux.

using Flux

const DTYPE = Float32

batch_norm(channels, activation = identity) = BatchNorm(
    channels, activation; eps = DTYPE(1.0e-5), momentum = DTYPE(0.1),
)

residual_block(channels) = Chain(
    SkipConnection(
        Chain(
            Conv((3, 3), channels => channels; pad = 1, bias = false),
            batch_norm(channels, relu),
            Conv((3, 3), channels => channels; pad = 1, bias = false),
            batch_norm(channels),
        ),
        +,
    ),
    x -> relu.(x),
)

projection_block(inputs, outputs) = Chain(
    Parallel(
        +,
        Chain(
            Conv((3, 3), inputs => outputs; stride = 2, pad = 1, bias = false),
            batch_norm(outputs, relu),
            Conv((3, 3), outputs => outputs; pad = 1, bias = false),
            batch_norm(outputs),
        ),
        Conv((1, 1), inputs => outputs; stride = 2, bias = false),
    ),
    x -> relu.(x),
)

# The CIFAR-10 ResNet of 32 layers: 15 residual blocks, batch norm.
network() = Chain(
    Conv((3, 3), 3 => 16; pad = 1, bias = false),
    batch_norm(16, relu),
    Chain([residual_block(16) for _ in 1:5]...),
    Chain(projection_block(16, 32), [residual_block(32) for _ in 1:4]...),
    Chain(projection_block(32, 64), [residual_block(64) for _ in 1:4]...),
    GlobalMeanPool(),
    Flux.flatten,
    Dense(64 => 10),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("norm1", model[2]),
    [residual_block_tensors("stage1.block$n", model[3][n]) for n in 1:5]...,
    projection_block_tensors("stage2.block1", model[4][1]),
    [residual_block_tensors("stage2.block$n", model[4][n]) for n in 2:5]...,
    projection_block_tensors("stage3.block1", model[5][1]),
    [residual_block_tensors("stage3.block$n", model[5][n]) for n in 2:5]...,
    named("dense", model[8]),
)

residual_block_tensors(name, block) = vcat(
    named("$name.conv1", block[1].layers[1]),
    named("$name.norm1", block[1].layers[2]),
    named("$name.conv2", block[1].layers[3]),
    named("$name.norm2", block[1].layers[4]),
)

projection_block_tensors(name, block) = vcat(
    named("$name.conv1", block[1][1][1]),
    named("$name.norm1", block[1][1][2]),
    named("$name.conv2", block[1][1][3]),
    named("$name.norm2", block[1][1][4]),
    named("$name.projection", block[1][2]),
)

named(name, layer::Conv) = ["$name.weight" => kernel(layer.weight)]

# Flux's convolution flips its kernel.
kernel(weight) = @view weight[end:-1:1, end:-1:1, :, :]

named(name, layer::Dense) = [
    "$name.weight" => transpose(layer.weight),
    "$name.bias" => layer.bias,
]

named(name, layer::BatchNorm) = [
    "$name.weight" => layer.γ,
    "$name.bias" => layer.β,
    "$name.running_mean" => layer.μ,
    "$name.running_variance" => layer.σ²,
]
