"""`lenet` in Keras; its layers have the names of initial_state.npz."""

import keras
from keras import layers


def network() -> keras.Model:
    """The CNN of Flux's tutorial."""
    return keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 5, activation="relu", name="conv1"), layers.MaxPooling2D(2),
        layers.Conv2D(8, 5, activation="relu", name="conv2"), layers.MaxPooling2D(2), layers.Flatten(),
        layers.Dense(120, name="dense1"), layers.Dense(84, name="dense2"), layers.Dense(10, name="dense3"),
    ])  # fmt: skip
