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
