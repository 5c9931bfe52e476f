# catdog-2 in Flux.

using Flux

# Cats and dogs, 64 x 64: 2 convolutions, 2 dense layers.
network() = Chain(
    Conv((3, 3), 3 => 32, relu),
    MaxPool((2, 2)),
    Conv((3, 3), 32 => 32, relu),
    MaxPool((2, 2)),
    Flux.flatten,
    Dense(6272 => 128, relu),
    Dense(128 => 2),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("conv2", model[3]),
    named("dense1", model[6]),
    named("dense2", model[7]),
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
