"""`resnet32` in JAX; its tensors have the names and layouts of initial_state.npz."""

import jax
from jax import Array, lax


def conv(weights: dict[str, Array], name: str, x: Array, stride: int = 1) -> Array:
    """A convolution without bias, followed by batch norm; equal padding on all four sides."""
    weight = weights[f"{name}.weight"]
    pad = (weight.shape[-1] - 1) // 2
    return lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad), (pad, pad)])


def norm(weights: dict[str, Array], state: dict[str, Array], name: str, x: Array) -> Array:
    """Batch norm with explicit constants; its running statistics are replaced in `state`."""
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    n = x.size // x.shape[1]
    for part, value in {"mean": mean, "variance": variance * (n / (n - 1))}.items():
        state[f"{name}.running_{part}"] = 0.9 * state[f"{name}.running_{part}"] + 0.1 * value
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    mean, variance, weight, bias = (value[:, None, None] for value in (mean, variance, weight, bias))
    return weight * (x - mean) * lax.rsqrt(variance + 1e-5) + bias


def block(weights: dict[str, Array], state: dict[str, Array], name: str, x: Array) -> Array:
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""
    stride = 2 if f"{name}.projection.weight" in weights else 1
    y = conv(weights, f"{name}.conv1", x, stride)
    y = jax.nn.relu(norm(weights, state, f"{name}.norm1", y))
    y = norm(weights, state, f"{name}.norm2", conv(weights, f"{name}.conv2", y))
    if stride == 2:
        x = conv(weights, f"{name}.projection", x, stride)
    return jax.nn.relu(y + x)


def network(weights: dict[str, Array], state: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
    """The CIFAR-10 ResNet of 32 layers, post-activation: logits (batch, 10), and the next step's state.

    Images are (batch, 3, 32, 32); the state has batch norm's running statistics.
    """
    state = dict(state)
    x = jax.nn.relu(norm(weights, state, "norm1", conv(weights, "conv1", x)))
    for stage in range(1, 4):
        for number in range(1, 6):
            x = block(weights, state, f"stage{stage}.block{number}", x)
    return x.mean((2, 3)) @ weights["dense.weight"].T + weights["dense.bias"], state
