"""The CIFAR-10 example of Keras 2.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples/cifar10_cnn.py; measured in minimaxir's
"Benchmarking TensorFlow on Cloud CPUs" and "Benchmarking Modern GPUs", 2017.
"""

from polybench.networks.layers import Conv, Dense, Dropout, Flatten, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

KERAS_CNN = Model(
    name="keras-cnn",
    summary="the CIFAR-10 example of Keras 2: 4 convolutions, 2 dense layers, dropout",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Conv("conv1", 3, 32, kernel=3, padding="same"),
        ReLU(),
        Conv("conv2", 32, 32, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout1", 0.25),
        Conv("conv3", 32, 64, kernel=3, padding="same"),
        ReLU(),
        Conv("conv4", 64, 64, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout2", 0.25),
        Flatten(),
        Dense("dense1", 2304, 512),
        ReLU(),
        Dropout("dropout3", 0.5),
        Dense("dense2", 512, 10),
    ),
    batch_size=32,
    optimizer=Optimizer("rmsprop", learning_rate=1e-4),
    parity_batch_size=8,
    published_parameters=1_250_858,
)
