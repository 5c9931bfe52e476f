"""Two MNIST examples of Keras 2: a multilayer perceptron and a small convolutional network.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples/mnist_mlp.py and mnist_cnn.py; measured in
minimaxir's "Benchmarking TensorFlow on Cloud CPUs", 2017. The original CNN is trained with Adadelta, which
polybench lacks; polybench uses Adam with its default learning rate.
"""

from polybench.networks.layers import Conv, Dense, Dropout, Flatten, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

_IMAGE = (1, 28, 28)
_DIGITS = 10

MNIST_MLP = Model(
    name="mnist-mlp",
    summary="the MNIST perceptron of Keras 2: 3 dense layers, dropout",
    input_shape=_IMAGE,
    classes=_DIGITS,
    layers=(
        Flatten(),
        Dense("dense1", 784, 512),
        ReLU(),
        Dropout("dropout1", 0.2),
        Dense("dense2", 512, 512),
        ReLU(),
        Dropout("dropout2", 0.2),
        Dense("dense3", 512, _DIGITS),
    ),
    batch_size=128,
    optimizer=Optimizer("rmsprop", learning_rate=1e-3),
    parity_batch_size=32,
    published_parameters=669_706,
)

MNIST_CNN = Model(
    name="mnist-cnn",
    summary="the MNIST CNN of Keras 2: 2 convolutions, 2 dense layers, dropout",
    input_shape=_IMAGE,
    classes=_DIGITS,
    layers=(
        Conv("conv1", 1, 32, kernel=3),
        ReLU(),
        Conv("conv2", 32, 64, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout1", 0.25),
        Flatten(),
        Dense("dense1", 9216, 128),
        ReLU(),
        Dropout("dropout2", 0.5),
        Dense("dense2", 128, _DIGITS),
    ),
    batch_size=128,
    optimizer=Optimizer("adam", learning_rate=1e-3),
    parity_batch_size=8,
    published_parameters=1_199_882,
)
