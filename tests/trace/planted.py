"""Planted differences of the recorded programs: their data, weights and settings, and the cause that must be named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from polybench.networks.layers import BatchNorm, Conv
from polybench.networks.model import Model
from polybench.planning.study_file import read_network
from polybench.schema.trace import DifferenceKind
from polybench.trace.file import Array

Plant = str
NETWORK = Path(__file__).with_name("network.toml")

CAUSES: dict[Plant, str] = {
    "initial weights": "other initial weights: all weights",
    "initial bias": "other initial weights: dense2.bias",
    "scaled inputs": "inputs are A's times 255",
    "shifted inputs": "plus -0.5",
    "mirrored inputs": "inputs mirrored along axis 3",
    "other inputs": "the batches have other inputs",
    "normalized inputs": "(normalized)",
    "other order": "same inputs, in another order",
    "other order later": "same inputs, in another order",
    "channels": "channels in reverse order",
    "labels": "labels are A's plus",
    "sum of the loss": "adds up the loss over the batch",
    "label smoothing": "label smoothing 0.1",
    "softmax twice": "applies softmax before the cross-entropy",
    "loss scale": "scales its gradients by 128",
    "penalty": "penalty of 0.005",
    "clipping": "clips its gradients to the norm 0.1",
    "clipping of each tensor": "clips the gradient of each tensor to the norm 0.1",
    "clipping of each value": "clips each value of its gradients to 0.01",
    "broadcast targets": "targets (16, 1) and predictions (16,) broadcast to (16, 16)",
    "mean loss of the epoch": "records the mean loss of its epoch so far",
    "gradients not zeroed": "does not set them to zero",
    "missing activation": "lacks the ReLU after norm",
    "other activation": "has SiLU for exact GELU after dense1",
    "additional activation": "has a ReLU after dense2",
    "tanh for exact GELU": "GELU by tanh for exact GELU",
    "pooling": "AveragePool for MaxPool",
    "ties of max-pool": "shares a max-pool's gradient among equal maxima",
    "padding": "pads conv1 with 0 zeros",
    "padding on the other side": "pads conv2 with [[0, 1], [0, 1]] zeros, not 1, as F.pad(x, (0, 1, 0, 1)) before it",
    "flipped kernel": "flips the kernel of conv1",
    "epsilon": "epsilon 0.001 in its normalization",
    "batch norm momentum": "momentum of batch norm",
    "biased variance": "running variance divides by n - 1",
    "evaluation mode": "normalizes with running statistics, as in evaluation",
    "fixed statistics": "B does not update its running statistics",
    "dropout": "dropout is active in B only",
    "bfloat16": "computes in bfloat16",
    "float16": "computes in float16",
    "TF32": "computes products in TF32",
    "frozen weight": "does not update dense1.weight",
    "other optimizer": "kind of optimizer is adam in B, and sgd in A",
    "learning rate": "the learning rate is 0.02 in B",
    "warm-up": "the schedule of the learning rate is 0.01, 0.02, 0.03 in B",
    "momentum": "the momentum is",
    "form of momentum": "form of momentum is v = m v + rate g",
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
    "decay of RMSprop": "the decay of RMSprop is",
    "clipping in the optimizer": "gradient clipping is 0.1 in B",
    "clipping of each tensor in the optimizer": "gradient clipping is 0.1 for the norm of each tensor in B",
}
"""Planted difference -> a part of the cause that `trace diff` must name."""

BASES: dict[str, set[Plant]] = {
    "adamw": {
        *("coupled decay", "decay on matrices only", "epsilon of the optimizer", "epsilon inside"),
        *("no bias correction", "betas", "amsgrad"),
    },
    "rmsprop": {"decay of RMSprop"},
    "schedule": {"form of momentum"},
    "coarse": {"ties of max-pool"},
    "strided": {"padding on the other side"},
    "regression": {"broadcast targets"},
}
"""Settings that both programs have, and the differences that need them. The other programs have SGD with momentum."""


class Located(NamedTuple):
    """A difference that rounding must not hide: settings of both programs, where it shows, and words of the verdict."""

    plant: Plant
    common: tuple[Plant, ...]
    step: int
    kind: DifferenceKind
    words: str


LOCATED = (
    Located("initial weights", ("in float16",), 0, "weight", "B starts from other initial weights: all weights."),
    Located("initial bias", ("in bfloat16",), 0, "weight", "B starts from other initial weights: dense2.bias."),
    Located("halved gradients", ("in float16", "no norm"), 0, "gradient", "B scales its gradients by 0.5"),
    Located("halved gradients", ("in float16",), 0, "gradient", "B scales its gradients by 0.5"),
    Located("halved gradients", ("in bfloat16", "no norm"), 0, "gradient", "B scales its gradients by 0.5"),
    Located("momentum", ("in float16",), 1, "update", "The momentum is 0.8 in B, and 0.9 in A."),
    Located("skipped step", ("learning rate",), 10, "weight", "they part after step 2. No known cause explains it."),
    Located("skipped step", ("no norm",), 10, "weight", "they part after step 2. No known cause explains it."),
    Located("skipped step", ("adamw",), 10, "weight", "they part after step 2. No known cause explains it."),
)
"""Differences at low precision, and between recorded steps, in PyTorch."""

LATER: dict[Plant, int] = {
    **dict.fromkeys(("other order later", "gradients not zeroed", "momentum", "dampening", "form of momentum"), 1),
    **dict.fromkeys(("betas", "amsgrad", "mean loss of the epoch"), 1),
}
"""First differing step of the differences that do not show in step 0."""

MISSING: dict[str, set[Plant]] = {
    "torch": {
        "biased variance",
        "epsilon inside",
        "no bias correction",
        "form of momentum",
        "clipping in the optimizer",
        "clipping of each tensor in the optimizer",
    },
    "jax": {"gradients not zeroed", "dropout"},
    "keras": {
        *("gradients not zeroed", "dampening", "weight decay", "coupled decay", "epsilon inside"),
        *("no bias correction", "biased variance", "TF32"),
        "softmax twice",  # Keras finds the logits before a softmax layer, and uses them
    },
}
"""Differences that a program does not have: its framework excludes them, or another program has them."""


def base(*plants: Plant) -> tuple[Plant, ...]:
    """Return the settings that both programs need for these differences."""
    return tuple(name for name, needing in BASES.items() if needing & {*plants})


@cache
def network(*, has_norm: bool = True, is_strided: bool = False) -> Model:
    """Return the network of all programs, with or without batch norm, and with a stride in its last convolution."""
    layers = [layer for layer in read_network(NETWORK).layers if has_norm or not isinstance(layer, BatchNorm)]
    if is_strided:
        last = max(index for index, layer in enumerate(layers) if isinstance(layer, Conv))
        layers[last] = replace(layers[last], stride=2, padding=1)
    return replace(read_network(NETWORK), layers=tuple(layers))


def initial_weights(plants: Collection[Plant]) -> dict[str, Array]:
    """Return weights in the canonical layout, by name."""
    random = np.random.default_rng(1 if "initial weights" in plants else 0)
    weights = {
        name: (random.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("f4") if len(shape) > 1
        else random.normal(1.0 if name == "norm.weight" else 0.0, 0.1, shape).astype("f4")
        for name, shape in network(has_norm="no norm" not in plants).weight_shapes().items()
    }  # fmt: skip
    if "initial bias" in plants:
        weights["dense2.bias"] *= 0
    if "regression" in plants:
        weights |= {name: weights[name][:1] for name in ("dense2.weight", "dense2.bias")}
    if "coarse" in plants:  # with coarse images, many values of a window are equal
        weights["conv1.weight"] = np.round(4 * weights["conv1.weight"]) / 4
    return weights


def batches(plants: Collection[Plant]) -> Iterator[tuple[Array, Array]]:
    """Iterate over eleven batches: images (16, 3, 8, 8), float32, and labels (16,), int64."""
    for step in range(11):
        random = np.random.default_rng([step, 7])
        images = random.normal(0.5, 0.3, (16, 3, 8, 8)).astype("f4")
        labels = random.integers(0, 4, 16)
        if "coarse" in plants:
            images = np.round(images)
        order = random.permutation(16)
        if "last labels" in plants and step > 2:
            labels = labels[::-1].copy()
        if "other order" in plants or ("other order later" in plants and step):
            images, labels = images[order], labels[order]
        for plant in plants:
            images = _CHANGES.get(plant, np.asarray)(images)
        labels = labels + 1 if "labels" in plants else labels
        labels = labels.astype("f4") if "regression" in plants else labels
        is_column = {"regression", "labels in a column"} & {*plants}
        yield np.ascontiguousarray(images), labels[:, None] if is_column else labels


_MEAN, _DEVIATION = np.float32([0.4, 0.5, 0.6]), np.float32([0.2, 0.25, 0.3])
_CHANGES: dict[Plant, Callable[[Array], Array]] = {
    "scaled inputs": lambda images: images * np.float32(255),
    "shifted inputs": lambda images: images - np.float32(0.5),
    "mirrored inputs": lambda images: images[..., ::-1],
    "other inputs": lambda images: images**2,
    "normalized inputs": lambda images: (images - _MEAN[:, None, None]) / _DEVIATION[:, None, None],
    "channels": lambda images: images[:, ::-1],
}


def learning_rate(plants: Collection[Plant], step: int) -> float:
    """Return the learning rate of a step."""
    rate: float = optimizer_settings(plants)["learning_rate"]
    return 0.01 * (step + 1) if {"warm-up", "schedule"} & {*plants} else rate


def to_tf32(values: Array) -> Array:
    """Round float32 to 11 significant bits, as tensor cores round the operands of a product."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**11), exponent - 11).astype("f4")


def optimizer_settings(plants: Collection[Plant]) -> dict[str, Any]:
    """Return name and settings in the words of PyTorch."""
    if "rmsprop" in plants:
        rho = 0.9 if "decay of RMSprop" in plants else 0.99
        return {"name": "rmsprop", "learning_rate": 0.001, "rho": rho, "eps": 1e-8, "weight_decay": 0.0}
    if {"adamw", "other optimizer"} & {*plants}:
        return {
            "name": "adam" if {"coupled decay", "other optimizer"} & {*plants} else "adamw",
            "learning_rate": 0.01,
            "weight_decay": 0.05 if "adamw" in plants else 0.0,
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
