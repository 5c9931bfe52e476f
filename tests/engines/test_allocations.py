"""What engines count against what follows from the shapes of their layers.

Gradients of weights do not grow with the batch B, activations do in proportion: whatever else a framework
allocates, bytes(4B) - bytes(2B) = 2 (bytes(2B) - bytes(B)).
"""

from __future__ import annotations

import pytest

from tests.engines.conftest import RunChecks

PRELUDE = """
from polybench.core.layers import Conv, Dense, Flatten, MaxPool, ReLU
from polybench.models.lenet import LENET

def counted(layers, repeats, variants=(), steps=3):
    build_layers(layers, repeats, variants)
    engine.run_steps(0, 2)
    return engine.count_allocations(2, steps)

def bytes_of_an_image(layers, repeats, variants=()):
    b1, b2, b4 = (counted(layers, k * repeats, variants).host.bytes_per_step for k in (1, 2, 4))
    assert b4 - b2 == 2 * (b2 - b1), (b1, b2, b4)
    return (b2 - b1) / (repeats * images.shape[1])
"""

TORCH = {
    "dense layers": """
layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
# What dense1 and the ReLU give, and the gradients of both; so for logits and their log-softmax.
assert bytes_of_an_image(layers, 1) == 4 * (4 * 60 + 4 * 10)
""",
    "lenet in both layouts": """
conv1, pool1, conv2, pool2 = 16 * 28 * 28, 16 * 14 * 14, 8 * 10 * 10, 8 * 5 * 5
# As above for convolutions and their ReLUs; pools, with where they found the maximum, in int64; dense layers.
tensors = 4 * (4 * conv1 + 2 * pool1 + 4 * conv2 + 2 * pool2 + 2 * (120 + 84) + 4 * 10) + 8 * (pool1 + pool2)
assert tensors <= bytes_of_an_image(LENET.layers, 1, ("channels_last",)) < 1.1 * tensors
# What oneDNN reorders before a convolution and after it depends on the processor.
assert tensors <= bytes_of_an_image(LENET.layers, 1) < 2 * tensors
""",
    "the number is that of a step": """
three, five = (counted(LENET.layers, 1, steps=steps).host for steps in (3, 5))
assert three == five and three.count_per_step == int(three.count_per_step) > 40
""",
    "counting trains as running does": """
build()
engine.run_steps(0, 3)
expected = engine.loss()
engine.reset()
engine.count_allocations(0, 3)
assert engine.loss() == expected
""",
    "what has no number is empty": """
build()
assert engine.count_allocations(0, 1).device is None
assert engine.device_peak_bytes() is None
""",
}

TENSORFLOW = {
    "tensors of 1 MiB and more": """
# The smallest tensors of what the convolution gives have 1.5 MiB; of all others none has 256 KiB.
layers = Conv("conv1", 3, 32, kernel=5), ReLU(), MaxPool(14), Flatten(), Dense("dense1", 128, 10)
# The ReLU gives a tensor (in the convolution's place), and so does the pool's gradient.
assert bytes_of_an_image(layers, 2) == 2 * 4 * 32 * 28 * 28
# For model.fit the same, and the copy of the images that an iterator over tensors makes.
assert bytes_of_an_image(layers, 2, ("keras_fit",)) == 2 * 4 * 32 * 28 * 28 + 4 * 3 * 32 * 32
""",
    "XLA plans one block": """
assert counted(LENET.layers, 4, ("xla",)).host.count_per_step == 1
""",
    "counting trains as running does": TORCH["counting trains as running does"],
    "what has no number is empty": """
layers = Flatten(), Dense("dense1", 3072, 10)
small = counted(layers, 1)
assert small.device is None and engine.device_peak_bytes() is None
assert small.host.count_per_step is None and small.host.bytes_per_step is None and small.host.covers
""",
}


@pytest.mark.parametrize(
    ("engine", "name"), [*(("torch", name) for name in TORCH), *(("tf", name) for name in TENSORFLOW)]
)
def test_allocations(run_checks: RunChecks, engine: str, name: str) -> None:
    checks = {"torch": TORCH, "tf": TENSORFLOW}[engine]
    found = run_checks(engine, {name: PRELUDE + check for name, check in checks.items()})
    assert not found[name], found[name]
