"""Planted differences of the recorded programs: their data, weights and settings, and the cause that must be named."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polybench.networks.model import Model
from polybench.planning.study_file import read_network
from polybench.trace.file import Array

Plant = str
NETWORK = Path(__file__).with_name("network.toml")

CAUSES: dict[Plant, str] = {
    "initial weights": "other initial weights",
    "scaled inputs": "inputs are A's times 255",
    "normalized inputs": "(normalized)",
    "other order": "same inputs in another order",
    "channels": "channels in reverse order",
    "labels": "labels are A's plus",
    "sum of the loss": "loss is the sum over 16 predictions",
    "label smoothing": "label smoothing 0.1",
    "penalty": "penalty of 0.005",
    "clipping": "clips its gradients to the norm 0.1",
    "gradients not zeroed": "does not set them to zero",
    "missing activation": "lacks the ReLU after norm",
    "tanh for exact GELU": "GELU by tanh for exact GELU",
    "pooling": "AveragePool for MaxPool",
    "padding": "pads conv1 with 0 zeros",
    "flipped kernel": "flips the kernel of conv1",
    "epsilon": "epsilon 0.001 in its normalization",
    "batch norm momentum": "momentum of batch norm",
    "biased variance": "running variance divides by n - 1",
    "dropout": "dropout is active in B only",
    "bfloat16": "computes in bfloat16",
    "frozen weight": "does not update dense1.weight",
    "learning rate": "learning rate is",
    "momentum": "the momentum is",
    "dampening": "dampening of the momentum is",
    "nesterov": "Nesterov momentum is",
    "weight decay": "the weight decay is",
    "coupled decay": "kind of weight decay is coupled",
    "decay on matrices only": "the decayed weights are",
    "epsilon of the optimizer": "epsilon of the optimizer is",
    "epsilon inside": "place of epsilon is inside",
    "no bias correction": "bias correction is off",
    "betas": "the betas are",
    "amsgrad": "AMSGrad is on",
}
"""Planted difference -> a part of the cause that `trace diff` must name."""

ADAM = (
    *("coupled decay", "decay on matrices only", "epsilon of the optimizer", "epsilon inside", "no bias correction"),
    *("betas", "amsgrad"),
)
"""Differences of AdamW; the programs of all others have SGD with momentum."""

MISSING = {
    "torch": {"biased variance", "epsilon inside", "no bias correction"},
    "jax": {"gradients not zeroed", "frozen weight", "dropout", "bfloat16", "amsgrad"},
    "keras": {
        *("gradients not zeroed", "frozen weight", "dropout", "bfloat16", "dampening", "weight decay"),
        *("coupled decay", "epsilon inside", "no bias correction", "biased variance"),
    },
}
"""Differences that a program does not have: its framework excludes them, or another program has them."""


@cache
def network() -> Model:
    """Return the network of all programs."""
    return read_network(NETWORK)


def initial_weights(plants: Collection[Plant]) -> dict[str, Array]:
    """Return weights in the canonical layout, by name."""
    random = np.random.default_rng(1 if "initial weights" in plants else 0)
    return {
        name: (random.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("f4") if len(shape) > 1
        else random.normal(1.0 if name == "norm.weight" else 0.0, 0.1, shape).astype("f4")
        for name, shape in network().weight_shapes().items()
    }  # fmt: skip


def batches(plants: Collection[Plant]) -> Iterator[tuple[Array, Array]]:
    """Iterate over eleven batches: images (16, 3, 8, 8), float32, and labels (16,), int64."""
    for step in range(11):
        random = np.random.default_rng([step, 7])
        images = random.normal(0.5, 0.3, (16, 3, 8, 8)).astype("f4")
        labels = random.integers(0, 4, 16)
        if "scaled inputs" in plants:
            images = images * np.float32(255)
        if "normalized inputs" in plants:
            mean, std = np.float32([0.4, 0.5, 0.6]), np.float32([0.2, 0.25, 0.3])
            images = (images - mean[:, None, None]) / std[:, None, None]
        if "other order" in plants:
            order = random.permutation(16)
            images, labels = images[order], labels[order]
        if "channels" in plants:
            images = images[:, ::-1].copy()
        yield images, labels + 1 if "labels" in plants else labels


def optimizer_settings(plants: Collection[Plant]) -> dict[str, Any]:
    """Return name and settings in the words of PyTorch."""
    if "adamw" in plants:
        return {
            "name": "adam" if "coupled decay" in plants else "adamw",
            "learning_rate": 0.01,
            "weight_decay": 0.05,
            "betas": (0.9, 0.99) if "betas" in plants else (0.9, 0.999),
            "eps": 1e-4 if "epsilon of the optimizer" in plants else 1e-8,
        } | ({"amsgrad": True} if "amsgrad" in plants else {})
    return {
        "name": "sgd",
        "learning_rate": 0.02 if "learning rate" in plants else 0.05,
        "momentum": 0.8 if "momentum" in plants else 0.9,
        "dampening": 0.1 if "dampening" in plants else 0.0,
        "nesterov": "nesterov" in plants,
        "weight_decay": 0.0 if "no decay" in plants else 0.001 if "weight decay" in plants else 0.01,
    }
