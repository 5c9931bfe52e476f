# small-vgg in Flux.

using Flux

const DTYPE = Float32

batch_norm(channels) = BatchNorm(channels; eps = DTYPE(0.001), momentum = DTYPE(0.01))

# A small VGG: 5 convolutions, 2 dense layers, batch norm, dropout.
network() = Chain(
    Conv((3, 3), 3 => 32, relu; pad = SamePad()),
    batch_norm(32),
    MaxPool((3, 3)),
    Dropout(0.25),
    Conv((3, 3), 32 => 64, relu; pad = SamePad()),
    batch_norm(64),
    Conv((3, 3), 64 => 64, relu; pad = SamePad()),
    batch_norm(64),
    MaxPool((2, 2)),
    Dropout(0.25),
    Conv((3, 3), 64 => 128, relu; pad = SamePad()),
    batch_norm(128),
    Conv((3, 3), 128 => 128, relu; pad = SamePad()),
    batch_norm(128),
    MaxPool((2, 2)),
    Dropout(0.25),
    Flux.flatten,
    Dense(56448 => 1024, relu),
    batch_norm(1024),
    Dropout(0.5),
    Dense(1024 => 4),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("norm1", model[2]),
    named("conv2", model[5]),
    named("norm2", model[6]),
    named("conv3", model[7]),
    named("norm3", model[8]),
    named("conv4", model[11]),
    named("norm4", model[12]),
    named("conv5", model[13]),
    named("norm5", model[14]),
    named("dense1", model[18]),
    named("norm6", model[19]),
    named("dense2", model[21]),
)

named(name, layer::Conv) = [
    "$name.weight" => kernel(layer.weight),
    "$name.bias" => layer.bias,
]

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
