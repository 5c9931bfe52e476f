"""Runs one operation of one layer in plain TensorFlow: the operation that `polybench layers` times, without polybench.

    python THIS_FILE

#: if layer
Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
expected result; channels first.
#: if lstm
Needs `layer.npz` in the same folder: the layer's weights, its input x (batch, time, features), the gradient dy of
its output, and the expected result (for the weight gradient, that of `weight`).
#: end
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
#: if layer
LAYER = keras.layers.ReLU()
#: if lstm
BIDIRECTIONAL = True
SEQUENCE = False  # the outputs of all time steps, or the last one
NEEDS_INPUT_GRADIENT = True  # false for the first layer of a network
#: end

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
arrays = np.load(Path(__file__).with_name("layer.npz"))
#: if layer
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
#: if lstm
x, dy = tf.constant(arrays["x"]), tf.constant(arrays["dy"])
layer = keras.layers.LSTM(arrays["recurrent"].shape[1], return_sequences=SEQUENCE)
layer = keras.layers.Bidirectional(layer) if BIDIRECTIONAL else layer
layer.build(x.shape)
names = [way + part for way in ("", "reverse_") for part in ("weight", "recurrent", "bias")]
weights = [variable.value for variable in layer.trainable_variables]
for variable, name in zip(weights, names, strict=False):
    variable.assign(arrays[name].T)


def gradient(*inputs: tf.Tensor) -> list[tf.Tensor]:
    """Those of the inputs; the forward pass, which they take, is computed again."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        y = layer(x, training=True)
    gradients: list[tf.Tensor] = tape.gradient(y, inputs, dy)
    return gradients


# The functions take no arguments, because passing them would take much of a small layer's time.
operations = {
    "forward": tf.function(lambda: [layer(x, training=True)]),
    "input gradient": tf.function(lambda: gradient(x)),
    "weight gradient": tf.function(lambda: gradient(*weights, *[x] * NEEDS_INPUT_GRADIENT)),
}
# A gradient includes the forward pass. Both gradients need the backward pass through time, so the weight gradient
# is the time of both minus that of the input gradient.
before_weights = "input gradient" if NEEDS_INPUT_GRADIENT else "forward"
less = {"input gradient": "forward", "weight gradient": before_weights}.get(OPERATION)

found = operations[OPERATION]()[0].numpy()
found = found.T if OPERATION == "weight gradient" else found
if less:
    operations[less]()
#: end
error = np.linalg.norm(found - arrays["expected"]) / np.linalg.norm(arrays["expected"])
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
#: if layer
    compiled(x, dy)
    seconds.append(perf_counter() - start)
#: if lstm
    operations[OPERATION]()
    seconds.append(perf_counter() - start)
    if less:
        start = perf_counter()
        operations[less]()
        seconds[-1] -= perf_counter() - start
#: end
print(f"TensorFlow {tf.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error:.1e}")
