# keras-cnn in Flux.

using Flux

# The CIFAR-10 example of Keras 2: 4 convolutions, 2 dense layers, dropout.
network() = Chain(
    Conv((3, 3), 3 => 32, relu; pad = SamePad()),
    Conv((3, 3), 32 => 32, relu),
    MaxPool((2, 2)),
    Dropout(0.25),
    Conv((3, 3), 32 => 64, relu; pad = SamePad()),
    Conv((3, 3), 64 => 64, relu),
    MaxPool((2, 2)),
    Dropout(0.25),
    Flux.flatten,
    Dense(2304 => 512, relu),
    Dropout(0.5),
    Dense(512 => 10),
)

# The arrays of the network by name, as views in polybench's layout: that of Python, with
# the axes reversed.
tensors(model) = vcat(
    named("conv1", model[1]),
    named("conv2", model[2]),
    named("conv3", model[5]),
    named("conv4", model[6]),
    named("dense1", model[10]),
    named("dense2", model[12]),
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
