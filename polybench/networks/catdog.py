"""Cats and dogs: networks of adjustable depth, `catdog-N` with N convolutions.

- 2: images of 64 x 64, two times (Conv 32, ReLU, MaxPool), Dense 128, Dense 2.
- 3: a third convolution with 64 filters, and dropout before the dense layers.
- 4: images of 128 x 128, four convolutions with 64 filters each.
- more than 4: the "unnecessarily deep" networks. The extra convolutions keep their input's size. They are
  spread evenly before the four poolings, starting at the last pooling.

Source: "GPU vs CPU Deep Learning: Training Performance of Convolutional Networks", 2018. The article
describes the first three and mentions deeper networks with 30 and more convolutions. polybench chose the
structure of the deeper networks, the batch size and the optimizer. `catdog-N@SIZE` takes images of another
size; the number of inputs of its first dense layer changes with it.
"""

from collections.abc import Iterator, Sequence

from polybench.errors import BadInput
from polybench.networks.layers import Conv, Dense, Dropout, Flatten, Layer, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

DEPTHS = range(2, 1001)


def catdog(depth: int, size: int | None = None) -> Model:
    """Build the network with `depth` convolutions for images of `size` x `size` pixels."""
    if depth not in DEPTHS:
        raise BadInput(f"catdog-{depth}: expected {DEPTHS[0]} to {DEPTHS[-1]} convolutions")
    default_size = 64 if depth < 4 else 128
    size = size or default_size
    filters = ((), (), (32, 32), (32, 32, 64))[depth] if depth < 4 else (64,) * depth
    convolutions = tuple(_convolutions(filters))
    side = size
    for _ in range(min(depth, 4)):  # pairs of a valid convolution and a pooling
        side = (side - 2) // 2
    if side < 1:
        raise BadInput(f"catdog-{depth}@{size}: the image is too small for the poolings; try catdog-{depth}@64")
    features = filters[-1] * side**2
    return Model(
        name=f"catdog-{depth}" if size == default_size else f"catdog-{depth}@{size}",
        summary=f"cats and dogs, {size} x {size}: {depth} convolutions, 2 dense layers",
        input_shape=(3, size, size),
        classes=2,
        layers=(
            *convolutions,
            Flatten(),
            *((Dropout("dropout1", 0.5),) if depth > 2 else ()),
            Dense("dense1", features, 128),
            ReLU(),
            Dense("dense2", 128, 2),
        ),
        batch_size=32,
        optimizer=Optimizer("momentum", learning_rate=0.01, momentum=0.9),
        parity_batch_size=16 if depth < 4 and size <= default_size else 2,
        published_parameters={2: 813_346, 3: 323_938, 4: 407_874}.get(depth) if size == default_size else None,
    )


def _convolutions(filters: Sequence[int]) -> Iterator[Layer]:
    inputs, number = 3, 0
    poolings = min(len(filters), 4)
    for pooling in range(poolings):
        # The remainder goes to the last poolings, where feature maps are small.
        for first in (True, *[False] * ((len(filters) - poolings + pooling) // poolings)):
            outputs = filters[number]
            number += 1
            yield Conv(f"conv{number}", inputs, outputs, kernel=3, padding="valid" if first else "same")
            yield ReLU()
            inputs = outputs
        yield MaxPool(2)


CATDOG_2 = catdog(2)
"""The network of the article."""
