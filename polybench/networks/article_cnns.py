"""Two networks of published comparisons.

dlframeworks-cnn: the CNN of ilkarman's DeepLearningFrameworks, 2018, which implements it in every framework; its
ReLU follows the pooling. Source: https://github.com/ilkarman/DeepLearningFrameworks

small-vgg: a small VGG for images of 256 x 256, with 58,091,396 parameters including untrained ones. Source:
"TensorFlow 2 - CPU vs GPU Performance Comparison", 2019; batch norm with Keras's default constants. The article
does not name the optimizer; polybench uses plain gradient descent. At ten times this learning rate the loss falls
faster, but in the small batch of the parity check rounding errors grow by a factor of up to fifty per step.
"""

from polybench.networks.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Layer, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

DLFRAMEWORKS_CNN = Model(
    name="dlframeworks-cnn",
    summary="the CNN of the DeepLearningFrameworks comparison: 4 convolutions, 2 dense layers, dropout",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Conv("conv1", 3, 50, kernel=3, padding="same"),
        ReLU(),
        Conv("conv2", 50, 50, kernel=3, padding="same"),
        MaxPool(2),
        ReLU(),
        Dropout("dropout1", 0.25),
        Conv("conv3", 50, 100, kernel=3, padding="same"),
        ReLU(),
        Conv("conv4", 100, 100, kernel=3, padding="same"),
        MaxPool(2),
        ReLU(),
        Dropout("dropout2", 0.25),
        Flatten(),
        Dense("dense1", 6400, 512),
        ReLU(),
        Dropout("dropout3", 0.5),
        Dense("dense2", 512, 10),
    ),
    batch_size=64,
    optimizer=Optimizer("momentum", learning_rate=0.01, momentum=0.9),
    parity_batch_size=4,
    published_parameters=3_441_592,
)

POOL_SIZES = (3, 2, 2)


def _norm(name: str, channels: int) -> BatchNorm:
    return BatchNorm(name, channels, epsilon=1e-3, momentum=0.01)


def _conv(number: int, inputs: int, outputs: int) -> tuple[Layer, ...]:
    conv = Conv(f"conv{number}", inputs, outputs, kernel=3, padding="same")
    return conv, ReLU(), _norm(f"norm{number}", outputs)


def small_vgg(size: int) -> Model:
    """Build the network for images of `size` x `size` pixels, at least 12."""
    side = size
    for pool in POOL_SIZES:
        side //= pool
    return Model(
        name="small-vgg",
        summary="a small VGG: 5 convolutions, 2 dense layers, batch norm, dropout",
        input_shape=(3, size, size),
        classes=4,
        layers=(
            *_conv(1, 3, 32),
            MaxPool(POOL_SIZES[0]),
            Dropout("dropout1", 0.25),
            *_conv(2, 32, 64),
            *_conv(3, 64, 64),
            MaxPool(POOL_SIZES[1]),
            Dropout("dropout2", 0.25),
            *_conv(4, 64, 128),
            *_conv(5, 128, 128),
            MaxPool(POOL_SIZES[2]),
            Dropout("dropout3", 0.25),
            Flatten(),
            Dense("dense1", 128 * side**2, 1024),
            ReLU(),
            _norm("norm6", 1024),
            Dropout("dropout4", 0.5),
            Dense("dense2", 1024, 4),
        ),
        batch_size=64,
        optimizer=Optimizer("sgd", learning_rate=1e-4),
        parity_batch_size=4,
        published_parameters=58_088_516 if size == 256 else None,
    )


SMALL_VGG = small_vgg(256)
