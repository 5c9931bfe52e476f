"""The networks. ADD A MODEL: one file with one tuple of layers, and its row here."""

from __future__ import annotations

import re

import msgspec

from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.names import pick
from polybench.models.catdog import DEPTHS, catdog
from polybench.models.char_lstm import CHAR_LSTM
from polybench.models.imdb import IMDB_BILSTM, IMDB_FASTTEXT
from polybench.models.keras_cnn import KERAS_CNN
from polybench.models.lenet import LENET
from polybench.models.mnist import MNIST_CNN, MNIST_MLP
from polybench.models.resnet32 import RESNET32
from polybench.models.rosetta import ROSETTA
from polybench.models.single_layer import single_layer
from polybench.models.smallvgg import SMALLVGG

_NETWORKS = (
    *(LENET, KERAS_CNN, ROSETTA, RESNET32, SMALLVGG, catdog(2)),
    *(MNIST_MLP, MNIST_CNN, IMDB_BILSTM, IMDB_FASTTEXT, CHAR_LSTM),
)
MODELS: dict[str, Model] = {model.name: model for model in _NETWORKS}
"""By name; of the networks whose depth is part of the name, the shallowest."""

_CATDOG = "catdog-N"
NAMES = tuple(_CATDOG if name == "catdog-2" else name for name in MODELS)
"""What may be asked for, in the order of MODELS; N is a number."""


def find_model(name: str | Model) -> Model:
    """The network of this name: a row of MODELS, `catdog-N` for a depth N, or a layer (see `single_layer`).

    `NAME@SIZE` is a network for images of SIZE x SIZE pixels. A network itself is what it is.

    Raises:
        BadInput: there is none; the message has the nearest names, or the depths.
    """
    if isinstance(name, Model):
        return name
    if " " in name:
        return single_layer(name)
    if "~" in name:
        raise BadInput(
            f"{name} was read from a file: give that, or write it anew from a study that has it,"
            f" polybench models ID --format toml > {name.partition('~')[0]}.toml"
        )
    name, at, size = name.partition("@")
    if at:
        return _resized(name, size)
    if depth := re.fullmatch(r"catdog-(\d{1,9})", name):
        return catdog(int(depth[1]))
    if name != _CATDOG:
        pick(name, dict.fromkeys(NAMES), "model")
        return MODELS[name]
    raise BadInput(f"{name}: give its number of convolutions, {DEPTHS[0]} to {DEPTHS[-1]}: catdog-4")


def _resized(name: str, size: str) -> Model:
    """A network for other images: one that averages over all pixels at its end, or computes its own width."""
    if not re.fullmatch(r"[1-9]\d{0,3}", size):
        raise BadInput(f"{name}@{size}: after @ stands the height and width of images in pixels: catdog-2@96")
    model, pixels = find_model(name), int(size)
    if name.startswith("catdog-"):
        return catdog(int(name.removeprefix("catdog-")), pixels)
    if model.input_shape[0] != 3 or len(model.input_shape) != 3:
        raise BadInput(f"{name}@{size}: {name} takes no images of any other size; resnet32 and catdog-N do")
    channels, height, _ = model.input_shape
    if pixels == height:
        return model
    try:
        return msgspec.structs.replace(
            model,
            name=f"{name}@{size}",
            summary=f"{model.summary}; for images of {size} x {size}",
            input_shape=(channels, pixels, pixels),
            parity_batch_size=max(2, model.parity_batch_size * height**2 // max(height, pixels) ** 2),
        )
    except ValueError:
        raise BadInput(
            f"{name}@{size}: {name} is made for images of {height} x {height};"
            " resnet32 and catdog-N take others"
        ) from None
