"""A user's program in NumPy, which trains a network of one layer, and mistakes that one can make in it."""

from __future__ import annotations

from polybench.networks.layers import Dense, Flatten
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

MODEL = Model(
    name="linear",
    summary="",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(Flatten(), Dense("dense", 3072, 10)),
    batch_size=16,
    optimizer=Optimizer("momentum", 0.01, momentum=0.9),
    parity_batch_size=4,
)

PROGRAM = '''"""A linear classifier in NumPy."""

import numpy as np

DTYPE = "float32"
sums = {}


def setup(weights):
    state = {}
    reset(state, weights)
    return state


def reset(state, weights, step=0):
    state["weights"] = {name: array.astype(DTYPE) for name, array in weights.items()}
    state["velocity"] = {name: np.zeros_like(array) for name, array in state["weights"].items()}


def load(images, labels):
    return images.reshape(len(images), -1).astype(DTYPE), labels


def train_step(state, batch):
    inputs, labels = batch
    weight, bias = state["weights"]["dense.weight"], state["weights"]["dense.bias"]
    logits = inputs @ weight.T + bias
    logits = logits - logits.max(1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    probabilities[rows, labels] -= 1
    gradient = probabilities / len(labels)
    gradients = {"dense.weight": gradient.T @ inputs, "dense.bias": gradient.sum(0)}
    for name, value in gradients.items():
        state["velocity"][name] = 0.9 * state["velocity"][name] + value
        state["weights"][name] = state["weights"][name] - np.asarray(0.01, DTYPE) * state["velocity"][name]
    return loss


def weights(state):
    return state["weights"]
'''

MISTAKES = {
    "a sum in place of the mean": (".mean()\n", ".sum()\n"),
    "a gradient that is not averaged": ("gradient = probabilities / len(labels)", "gradient = probabilities"),
    "a bias that is not trained": ('"dense.bias": gradient.sum(0)', '"dense.bias": 0 * gradient.sum(0)'),
    "another momentum": ("0.9 * state", "0.8 * state"),
    "gradients that are never cleared": (
        "    for name, value in gradients.items():\n",
        "    for name, value in gradients.items():\n        value = sums[name] = sums.get(name, 0) + value\n",
    ),
    "another rate": ("np.asarray(0.01", "np.asarray(0.011"),
}
"""Replacements of text."""


def without(text: str, function: str) -> str:
    """Return a program without its last function."""
    return text[: text.index(f"\n\ndef {function}(")]
