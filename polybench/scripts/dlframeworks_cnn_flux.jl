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
