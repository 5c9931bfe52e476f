"""Built-in networks. ADD A MODEL: one file with one tuple of layers, and a row in `_REFERENCES`."""

from __future__ import annotations

import re

import msgspec

from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks.catdog import DEPTHS, catdog
from polybench.networks.model import Model
from polybench.networks.single_layer import is_single_layer, single_layer
from polybench.plugins import Registry

_REFERENCES = {
    "lenet": "polybench.networks.lenet:LENET",
    "keras-cnn": "polybench.networks.keras_examples:KERAS_CNN",
    "dlframeworks-cnn": "polybench.networks.article_cnns:DLFRAMEWORKS_CNN",
    "resnet32": "polybench.networks.resnet32:RESNET32",
    "small-vgg": "polybench.networks.article_cnns:SMALL_VGG",
    "catdog-2": "polybench.networks.catdog:CATDOG_2",
    "mnist-mlp": "polybench.networks.keras_examples:MNIST_MLP",
    "mnist-cnn": "polybench.networks.keras_examples:MNIST_CNN",
    "imdb-bilstm": "polybench.networks.keras_examples:IMDB_BILSTM",
    "imdb-fasttext": "polybench.networks.keras_examples:IMDB_FASTTEXT",
    "char-lstm": "polybench.networks.keras_examples:CHAR_LSTM",
    "char-gpt": "polybench.networks.transformers:CHAR_GPT",
    "vit-cifar": "polybench.networks.transformers:VIT_CIFAR",
    "mobile-cifar": "polybench.networks.mobile_cifar:MOBILE_CIFAR",
}
MODELS = Registry("model", Model, _REFERENCES)
"""Networks by name. A family of networks with the depth in its name is represented by its shallowest member."""

_CATDOG_FAMILY = "catdog-N"
MODEL_NAMES = tuple(_CATDOG_FAMILY if name == "catdog-2" else name for name in MODELS)
"""Accepted values of `--model`, in the order of MODELS; N stands for a number."""


def find_model(name: str | Model) -> Model:
    """Return the network of this name: a row of MODELS, `catdog-N` with a depth N, or a layer (see `single_layer`).

    `NAME@SIZE` is the same network for images of SIZE x SIZE pixels, or for sequences of SIZE positions. A `Model` is
    returned unchanged. If the name is unknown, BadInput suggests the nearest names, or the valid depths.
    """
    if isinstance(name, Model):
        return name
    if is_single_layer(name):
        return single_layer(name)
    if "~" in name:
        raise BadInput(
            f"{name} was read from a file: give that file, or write it again from a study that used it:"
            f" polybench models ID --format toml > {name.partition('~')[0]}.toml"
        )
    name, separator, size = name.partition("@")
    if separator:
        return _with_size(name, size)
    if depth := re.fullmatch(r"catdog-(\d{1,9})", name):
        return catdog(int(depth[1]))
    if name != _CATDOG_FAMILY:
        names = [_CATDOG_FAMILY if one == "catdog-2" else one for one in MODELS.names()]
        lookup_or_suggest(name, dict.fromkeys(names), "model")
        return MODELS.find(name)
    raise BadInput(f"{name}: expected a number of convolutions from {DEPTHS[0]} to {DEPTHS[-1]}, such as catdog-4")


def _with_size(name: str, size: str) -> Model:
    """Return the network for another image size, if it ends in global average pooling or computes its own
    width, or for another length of sequences.
    """
    if not re.fullmatch(r"[1-9]\d{0,3}", size):
        problem = "expected the height and width of images in pixels after @, such as catdog-2@96, or the length of"
        raise BadInput(f"{name}@{size}: {problem} sequences, such as char-gpt@256")
    model, side = find_model(name), int(size)
    if any("length" in layer.inferred for layer in model.layers) and model.input_kind == "sequence":
        return _with_length(model, side)
    if name.startswith("catdog-"):
        return catdog(int(name.removeprefix("catdog-")), side)
    if model.input_shape[0] != 3 or len(model.input_shape) != 3:
        raise BadInput(f"{name}@{size}: {name} supports only one input size; use resnet32 or catdog-N for others")
    channels, height, _ = model.input_shape
    if side == height:
        return model
    try:
        return msgspec.structs.replace(
            model,
            name=f"{name}@{size}",
            summary=f"{model.summary}; for images of {size} x {size}",
            input_shape=(channels, side, side),
            parity_batch_size=max(2, model.parity_batch_size * height**2 // max(height, side) ** 2),
        )
    except ValueError:
        raise BadInput(
            f"{name}@{size}: {name} supports only images of {height} x {height};"
            " use resnet32 or catdog-N for other sizes"
        ) from None


def _with_length(model: Model, length: int) -> Model:
    """Return the network for sequences of another length; its tables of positions have as many rows."""
    before, *features = model.input_shape
    if length == before:
        return model
    layers = tuple(
        msgspec.structs.replace(layer, length=length) if "length" in layer.inferred else layer for layer in model.layers
    )
    return msgspec.structs.replace(
        model,
        name=f"{model.name}@{length}",
        summary=f"{model.summary}; for sequences of {length}",
        input_shape=(length, *features),
        layers=layers,
        parity_batch_size=max(2, model.parity_batch_size * before // max(length, before)),
        published_parameters=None,
    )
