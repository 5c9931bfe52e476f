"""Cats against dogs: networks whose depth is a knob, `catdog-N` with N convolutions.

- 2: images of 64 x 64, two times (Conv 32, ReLU, MaxPool), Dense 128, Dense 2;
- 3: a third convolution, of 64 filters, and dropout before the dense layers;
- 4: images of 128 x 128, four convolutions, 64 filters everywhere;
- more: the "unnecessarily deep" ones. Further convolutions that keep their input's size stand before the
  poolings of the four, evenly, the last pooling first.

Source: "GPU vs CPU Deep Learning: Training Performance of Convolutional Networks", 2018, which tells the
first three and that there were deeper ones, of 30 and more convolutions; how those were built is ours, and so
are batch and optimizer. `catdog-N@SIZE` takes images of another size: its first dense layer has other inputs.
"""

from collections.abc import Iterator, Sequence

from polybench.core.errors import BadInput
from polybench.core.layers import Conv, Dense, Dropout, Flatten, Layer, MaxPool, ReLU
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer

DEPTHS = range(2, 1001)


def catdog(depth: int, size: int | None = None) -> Model:
    """The network with `depth` convolutions, for images of `size` x `size` pixels.

    Raises:
        BadInput: there is none with so few, or so many, or nothing is left of so small an image.
    """
    if depth not in DEPTHS:
        raise BadInput(f"catdog-{depth}: the number of convolutions is {DEPTHS[0]} to {DEPTHS[-1]}")
    own = 64 if depth < 4 else 128
    size = size or own
    filters = ((), (), (32, 32), (32, 32, 64))[depth] if depth < 4 else (64,) * depth
    convolutions = tuple(_convolutions(filters))
    side = _side(size, min(depth, 4))
    if side < 1:
        raise BadInput(f"catdog-{depth}@{size}: nothing is left of so small an image; try catdog-{depth}@64")
    features = filters[-1] * side**2
    return Model(
        name=f"catdog-{depth}" if size == own else f"catdog-{depth}@{size}",
        summary=f"cats against dogs, {size} x {size}: {depth} convolutions, 2 dense layers",
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
        parity_batch_size=16 if depth < 4 and size <= own else 2,
        published_parameters={2: 813_346, 3: 323_938, 4: 407_874}.get(depth) if size == own else None,
    )


def _convolutions(filters: Sequence[int]) -> Iterator[Layer]:
    inputs, number = 3, 0
    poolings = min(len(filters), 4)
    for pooling in range(poolings):
        # A remainder goes to the last poolings, where images are small.
        for first in (True, *[False] * ((len(filters) - poolings + pooling) // poolings)):
            outputs = filters[number]
            number += 1
            yield Conv(f"conv{number}", inputs, outputs, kernel=3, padding="valid" if first else "same")
            yield ReLU()
            inputs = outputs
        yield MaxPool(2)


def _side(size: int, poolings: int) -> int:
    """What is left of `size` pixels after so many times (valid convolution, pooling)."""
    for _ in range(poolings):
        size = (size - 2) // 2
    return size
