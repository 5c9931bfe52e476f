"""The CNN of ilkarman's DeepLearningFrameworks comparison; its ReLU follows the pooling.

Source: https://github.com/ilkarman/DeepLearningFrameworks, 2018, which implements this network in every
framework.
"""

from polybench.networks.layers import Conv, Dense, Dropout, Flatten, MaxPool, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

DLFRAMEWORKS_CNN = Model(
    name="dlframeworks-cnn",
    summary="the CNN of the DeepLearningFrameworks comparison: 4 convolutions, 2 dense layers, dropout",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Conv("conv1", 3, 50, kernel=3, padding="same"),
        ReLU(),
        Conv("conv2", 50, 50, kernel=3, padding="same"),
        MaxPool(2),
        ReLU(),
        Dropout("dropout1", 0.25),
        Conv("conv3", 50, 100, kernel=3, padding="same"),
        ReLU(),
        Conv("conv4", 100, 100, kernel=3, padding="same"),
        MaxPool(2),
        ReLU(),
        Dropout("dropout2", 0.25),
        Flatten(),
        Dense("dense1", 6400, 512),
        ReLU(),
        Dropout("dropout3", 0.5),
        Dense("dense2", 512, 10),
    ),
    batch_size=64,
    optimizer=Optimizer("momentum", learning_rate=0.01, momentum=0.9),
    parity_batch_size=4,
    published_parameters=3_441_592,
)
