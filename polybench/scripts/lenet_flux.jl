# The CNN of Flux's tutorial.
network() = Chain(
    Conv(kernel("conv1"), bias("conv1"), relu), MaxPool((2, 2)),
    Conv(kernel("conv2"), bias("conv2"), relu), MaxPool((2, 2)), Flux.flatten,
    Dense(matrix("dense1"), bias("dense1")), Dense(matrix("dense2"), bias("dense2")),
    Dense(matrix("dense3"), bias("dense3")),
)
