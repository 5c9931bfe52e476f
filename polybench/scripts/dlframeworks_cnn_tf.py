"""`dlframeworks-cnn` in Keras; its layers have the names of initial_state.npz."""

import keras
from keras import layers


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
