"""Train `lenet` in plain Keras: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

#: if images
initial_state.npz comes from `polybench export --weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
#: if tokens
initial_state.npz comes from `polybench export --weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
"""

import json
#: if keras
import os
#: end
import sys
import time
from pathlib import Path
#: if tokens
from typing import Any
#: end

#: if tf
import keras
#: end
import numpy as np
#: if tf|tokens
import tensorflow as tf
#: end
#: if tf
from keras import layers
#: end

#: if tf
DEVICE = "cpu"
#: if keras images
BACKEND = "tensorflow"
#: end
THREADS = 2
#: if tf
TF32 = False
#: end
LEARNING_RATE = 0.01
#: if images
MOMENTUM = 0.9
#: if tf images
EAGER = False
XLA = False
#: end
UNTIMED_STEPS = 2
STEPS = 58

#: if keras images
# Keras reads the first variable at import, JAX the second at the first use of a device. The last one hides all GPUs.
os.environ |= {"KERAS_BACKEND": BACKEND, "NPROC": str(THREADS), "CUDA_VISIBLE_DEVICES": ""}
#: if keras tokens
# Keras reads the first variable at import; the second hides all GPUs from TensorFlow.
os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
#: if keras

import keras
from keras import layers

#: if keras images
if BACKEND == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
elif BACKEND == "torch":
    import torch

    torch.set_num_threads(THREADS)
#: if tf|tokens
tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
#: if tf
tf.config.experimental.enable_tensor_float_32_execution(TF32)
# Only the requested device is visible, so TensorFlow places everything there.
gpus, gpu = tf.config.list_physical_devices("GPU"), int(DEVICE.partition(":")[2] or 0)
tf.config.set_visible_devices([] if DEVICE == "cpu" else gpus[gpu], "GPU")
#: end


#: if lenet
def network() -> keras.Model:
    """The CNN of Flux's tutorial."""
    return keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 5, activation="relu", name="conv1"), layers.MaxPooling2D(2),
        layers.Conv2D(8, 5, activation="relu", name="conv2"), layers.MaxPooling2D(2), layers.Flatten(),
        layers.Dense(120, name="dense1"), layers.Dense(84, name="dense2"), layers.Dense(10, name="dense3"),
    ])  # fmt: skip


#: if dlframeworks-cnn
def network() -> keras.Model:
    """The CNN of the DeepLearningFrameworks comparison."""
    return keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(50, 3, padding="same", activation="relu", name="conv1"),
        layers.Conv2D(50, 3, padding="same", name="conv2"),
        layers.MaxPooling2D(2), layers.ReLU(), layers.Dropout(0.25),
        layers.Conv2D(100, 3, padding="same", activation="relu", name="conv3"),
        layers.Conv2D(100, 3, padding="same", name="conv4"),
        layers.MaxPooling2D(2), layers.ReLU(), layers.Dropout(0.25), layers.Flatten(),
        layers.Dense(512, activation="relu", name="dense1"), layers.Dropout(0.5),
        layers.Dense(10, name="dense2"),
    ])  # fmt: skip


#: if resnet32
def conv3x3(x: keras.KerasTensor, filters: int, stride: int, name: str) -> keras.KerasTensor:
    """A 3x3 convolution without bias, followed by batch norm."""
    if stride == 1:
        return layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    # "same" with a stride would add zeros below and to the right only.
    x = layers.ZeroPadding2D(1)(x)
    return layers.Conv2D(filters, 3, stride, use_bias=False, name=name)(x)


def norm(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Batch norm with explicit constants; Keras's momentum is the share of what was."""
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def block(x: keras.KerasTensor, filters: int, name: str) -> keras.KerasTensor:
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""
    stride = 1 if x.shape[-1] == filters else 2
    y = conv3x3(x, filters, stride, f"{name}.conv1")
    y = layers.ReLU()(norm(y, f"{name}.norm1"))
    y = conv3x3(y, filters, 1, f"{name}.conv2")
    y = norm(y, f"{name}.norm2")
    if stride == 2:
        x = layers.Conv2D(filters, 1, stride, use_bias=False, name=f"{name}.projection")(x)
    return layers.ReLU()(layers.add([y, x]))


def network() -> keras.Model:
    """The CIFAR-10 ResNet of 32 layers, post-activation."""
    image = keras.Input((32, 32, 3))
    x = conv3x3(image, 16, 1, "conv1")
    x = layers.ReLU()(norm(x, "norm1"))
    for stage, filters in enumerate((16, 32, 64), 1):
        for number in range(1, 6):
            x = block(x, filters, f"stage{stage}.block{number}")
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10, name="dense")(x))


#: if imdb-bilstm
def network() -> keras.Model:
    """The IMDb example of Keras 2: a bidirectional LSTM over embedded words."""
    return keras.Sequential([
        keras.Input((100,), dtype="int32"), layers.Embedding(20_000, 128),
        layers.Bidirectional(layers.LSTM(64)), layers.Dropout(0.5), layers.Dense(2),
    ])  # fmt: skip


#: end
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
model = network()
#: if images
# The format of the official files: 1 byte label, then red, green and blue planes.
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    images = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))  # channels last
    labels = records[indices, 0].astype(np.int32)
    batches.append((keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)))

flattened = None  # height, width and channels of the input of the next dense layer
for layer in model.layers:
    if isinstance(layer, layers.Flatten):
        flattened = layer.input.shape[1:]
    elif hasattr(layer, "kernel"):  # batch norm starts at 1 and 0, as in initial_state.npz
        weight = start[f"{layer.name}.weight"]
        if flattened:  # channels last here, first in initial_state.npz
            height, width, channels = flattened
            images = weight.reshape(-1, channels, height, width)
            weight, flattened = images.transpose(0, 2, 3, 1).reshape(weight.shape), None
        kernel = weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T
        layer.set_weights([kernel, start[f"{layer.name}.bias"]] if layer.use_bias else [kernel])
optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
#: if tokens
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int32) for name in ("tokens", "labels"))
batches = [
    (tf.constant(tokens[indices]), tf.constant(labels[indices]))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

# Keras has (in, out) where initial_state.npz has (out, in).
parts = [f"lstm.{way}{part}" for way in ("", "reverse_") for part in ("weight", "recurrent", "bias")]
model.set_weights([start["embedding.weight"], *(start[name].T for name in (*parts, "dense.weight", "dense.bias"))])


class Adam(keras.optimizers.Adam):
    """Adam of its paper's Algorithm 1, as all others have it.

    Keras adds epsilon to the root of v before v is corrected. And where a batch takes a row of an embedding
    several times, it adds up the squares of the gradients, and not the gradients.
    """

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: tf.Tensor) -> None:
        """Called by `apply_gradients` for each variable."""
        steps = keras.ops.cast(self.iterations + 1, variable.dtype)
        self.epsilon = 1e-8 * keras.ops.sqrt(1 - self.beta_2**steps)
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


optimizer = Adam(LEARNING_RATE)
#: end
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
#: if tf
optimizer.build(model.trainable_variables)


def one_step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Run one step; return the loss before the update."""
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(inputs, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


#: if tf images
train_step = one_step if EAGER else tf.function(one_step, jit_compile=XLA or None)
#: if tf tokens
train_step = tf.function(one_step)
#: if keras
model.compile(optimizer, loss_function)

train_step = model.train_on_batch
#: end
losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
#: if tf
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        loss = train_step(*batch)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    tf.test.experimental.sync_devices()
    begin = time.perf_counter()
    losses += [train_step(*batch) for batch in batches[UNTIMED_STEPS:]]
    tf.test.experimental.sync_devices()
    seconds.append((time.perf_counter() - begin) / STEPS)
#: if keras
for batch in batches[UNTIMED_STEPS:]:
    begin = time.perf_counter()
    loss = train_step(*batch)
    seconds.append(time.perf_counter() - begin)
    losses.append(loss)
#: end

print(json.dumps({"step_seconds": seconds, "losses": [float(loss) for loss in losses]}))
