"""Runs one operation of one layer in plain TensorFlow: the operation that `polybench layers` times, without polybench.

    python THIS_FILE

Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
expected result; channels first.
"""

from pathlib import Path
from statistics import median
from time import perf_counter

import keras
import numpy as np
import tensorflow as tf

OPERATION = "forward"  # "input gradient", "weight gradient"
THREADS = 2
REPEATS = 100
LAYER = keras.layers.ReLU()

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
arrays = np.load(Path(__file__).with_name("layer.npz"))
# Batch, height, width, channels; features as they are.
x, dy = (
    tf.constant(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array) for array in (arrays["x"], arrays["dy"])
)
LAYER.build(x.shape)
trained = [variable.value for variable in LAYER.trainable_variables]
for variable, name in zip(trained, ("weight", "bias"), strict=False):
    weight = arrays[name]
    variable.assign(weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T)


def gradient(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """Compute the gradient of the input or the weight;
    it repeats what it needs of the forward pass (nothing for Conv2D)."""
    inputs = [x] if OPERATION == "input gradient" else trained
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        y = LAYER(x, training=True)
    return tape.gradient(y, inputs, dy)[0]


compiled = tf.function((lambda x, _: LAYER(x, training=True)) if OPERATION == "forward" else gradient)
found = compiled(x, dy).numpy()
if OPERATION == "weight gradient":
    found = found.transpose(3, 2, 0, 1) if found.ndim == 4 else found.T
elif found.ndim == 4:
    found = found.transpose(0, 3, 1, 2)
error = np.linalg.norm(found - arrays["expected"]) / np.linalg.norm(arrays["expected"])
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    compiled(x, dy)
    seconds.append(perf_counter() - start)
print(f"TensorFlow {tf.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error:.1e}")
