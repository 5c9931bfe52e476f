"""Keras's Adam on TensorFlow: v of an embedding's row adds up squares where a batch takes the row twice.

KERAS_BACKEND=tensorflow python keras_embedding_adam.py
"""

import keras
import tensorflow as tf

print(f"keras {keras.__version__}, tensorflow {tf.__version__}")
for kind in ("tf.IndexedSlices", "dense"):
    table = keras.Variable([[0.0], [0.0], [0.0]])
    adam = keras.optimizers.Adam(learning_rate=1e-3)
    adam.build([table])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table.value, [0, 0, 1]))  # row 0 twice: its gradient is 2
    gradient = tape.gradient(loss, table.value)
    adam.apply([gradient if kind == "tf.IndexedSlices" else tf.convert_to_tensor(gradient)])
    _, v = (variable.numpy().ravel() for variable in adam.variables[2:])
    print(f"{kind}: v {v}, the first step {table.numpy().ravel()}")
