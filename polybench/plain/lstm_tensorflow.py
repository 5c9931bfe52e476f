"""One part of an LSTM in TensorFlow, by hand: what `polybench layers` times, and nothing of polybench.

    python THIS_FILE

Needs `layer.npz` beside it: the layer's weights, its input x (batch, time, features), the gradient dy of its
output, and what is expected: of the weights' gradients that of `weight`.
"""

from pathlib import Path
from statistics import median
from time import perf_counter

import keras
import numpy as np
import tensorflow as tf

PART = "forward"  # "data gradient", "weight gradient"
THREADS = 2
REPEATS = 100
BIDIRECTIONAL = True
SEQUENCE = False  # the output of each time, or the last one
WANTS_DATA_GRADIENT = True  # not of a network's first layer

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
arrays = np.load(Path(__file__).with_name("layer.npz"))
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


# Nothing is handed over: of a small layer, that would be a good part of its time.
parts = {
    "forward": tf.function(lambda: [layer(x, training=True)]),
    "data gradient": tf.function(lambda: gradient(x)),
    "weight gradient": tf.function(lambda: gradient(*weights, *[x] * WANTS_DATA_GRADIENT)),
}
# A gradient takes the forward pass as well. Both need the way back through time, so the weights' is what both
# take beyond the data's.
before_weights = "data gradient" if WANTS_DATA_GRADIENT else "forward"
less = {"data gradient": "forward", "weight gradient": before_weights}.get(PART)

found = parts[PART]()[0].numpy()
found = found.T if PART == "weight gradient" else found
error = np.linalg.norm(found - arrays["expected"]) / np.linalg.norm(arrays["expected"])
if less:
    parts[less]()
seconds = []
for _ in range(REPEATS):
    start = perf_counter()
    parts[PART]()
    took = perf_counter() - start
    if less:
        start = perf_counter()
        parts[less]()
        took -= perf_counter() - start
    seconds.append(took)
print(f"TensorFlow {tf.__version__}: {1e3 * median(seconds):.3f} ms, relative error {error:.1e}")
