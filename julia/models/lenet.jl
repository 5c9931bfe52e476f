# lenet in Flux.

using Flux

# The Flux tutorial's network: 2 convolutions, 3 dense layers.
network() = Chain(
    Conv((5, 5), 3 => 16, relu),
    MaxPool((2, 2)),
    Conv((5, 5), 16 => 8, relu),
    MaxPool((2, 2)),
    Flux.flatten,
    Dense(200 => 120),
    Dense(120 => 84),
    Dense(84 => 10),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("conv2", model[3]),
    named("dense1", model[6]),
    named("dense2", model[7]),
    named("dense3", model[8]),
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
