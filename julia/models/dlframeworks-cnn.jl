# dlframeworks-cnn in Flux.

using Flux

# The CNN of the DeepLearningFrameworks comparison: 4 convolutions, 2 dense layers, dropout.
network() = Chain(
    Conv((3, 3), 3 => 50, relu; pad = SamePad()),
    Conv((3, 3), 50 => 50; pad = SamePad()),
    MaxPool((2, 2)),
    x -> relu.(x),
    Dropout(0.25),
    Conv((3, 3), 50 => 100, relu; pad = SamePad()),
    Conv((3, 3), 100 => 100; pad = SamePad()),
    MaxPool((2, 2)),
    x -> relu.(x),
    Dropout(0.25),
    Flux.flatten,
    Dense(6400 => 512, relu),
    Dropout(0.5),
    Dense(512 => 10),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("conv2", model[2]),
    named("conv3", model[6]),
    named("conv4", model[7]),
    named("dense1", model[12]),
    named("dense2", model[14]),
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
