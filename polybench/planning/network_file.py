"""Reads network files: custom networks as TOML. Every error names the file and the line.

`network_layers` reads the layers, `network_table` writes such a file; docs/guides/own_network.md has an
example.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from polybench.errors import BadInput
from polybench.networks.flops import training_macs
from polybench.networks.layers import Shape
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS, LearningRateSchedule, Momentum, Optimizer, Rate, WeightDecay
from polybench.planning.estimate import REFERENCE_RATE
from polybench.planning.network_layers import MAX_VALUES, read_layers
from polybench.planning.network_values import StructReader
from polybench.planning.toml_text import KeyPath, TomlText
from polybench.schema.options import PositiveInt, Study

SUFFIX = ".toml"
"""Distinguishes a file from the name of a built-in network."""

FINGERPRINT_MARK = "~"
"""Separates a network's name from the beginning of the SHA-256 of its content."""

MAX_NAME_LENGTH = 40

T = TypeVar("T")
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$(?!\n)", max_length=MAX_NAME_LENGTH)]
_Summary = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)", max_length=200)]


class _Network(msgspec.Struct, frozen=True):
    """The keys of a file. `parameters` is the expected number of parameters."""

    classes: Annotated[int, Meta(ge=2, le=256)]
    input: dict[str, Any]
    layers: list[Any]
    name: _Name | None = None
    summary: _Summary = "a custom network"
    initialization: Literal["glorot", "he"] = "glorot"
    parameters: PositiveInt | None = None
    training: dict[str, Any] = {}
    blocks: dict[str, Any] = {}


class _Images(msgspec.Struct, frozen=True):
    channels: Literal[1, 3]
    height: Annotated[int, Meta(ge=1, le=9999)]
    width: Annotated[int, Meta(ge=1, le=9999)]


class _Tokens(msgspec.Struct, frozen=True):
    vocabulary: Annotated[int, Meta(ge=1, le=1 << 24)]
    length: Annotated[int, Meta(ge=1, le=1 << 16)]


class _Features(msgspec.Struct, frozen=True):
    features: Annotated[int, Meta(ge=1, le=1 << 16)]
    length: Annotated[int, Meta(ge=1, le=1 << 16)]


_INPUTS: tuple[type[_Images | _Tokens | _Features], ...] = (_Images, _Tokens, _Features)
INPUTS = "channels, height and width of images; vocabulary and length of tokens; features and length"
"""Valid keys of the input, for errors."""


class _Training(msgspec.Struct, frozen=True):
    """Default training settings of the network."""

    batch_size: PositiveInt = 128
    parity_batch_size: PositiveInt | None = None
    optimizer: Literal["sgd", "momentum", "nesterov", "adam", "rmsprop"] = "momentum"
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    lr_schedule: LearningRateSchedule | None = None


_MAX_PARITY_BATCH = 16


def with_network(study: Study, folder: Path = Path()) -> Study:
    """Replace a `model` that is a file by its network; relative paths start at `folder`.

    Raises:
        BadInput: the file cannot be read, or is not a network file; the message has its name and the line.
    """
    model = study.model
    if isinstance(model, Model) or not model.endswith(SUFFIX):
        return study
    return msgspec.structs.replace(study, model=read_network(find_file(model, folder)))


def with_network_of(
    text: TomlText, table: dict[str, Any], above: KeyPath = (), folder: Path = Path()
) -> dict[str, Any]:
    """Replace a `model` that is a table or a file by its network, in the fields of a study.

    Args:
        text: the text of the study file.
        table: the fields.
        above: key path of the table.
        folder: start of relative paths.

    Raises:
        BadInput: with the lines in both files.
    """
    model, place = table.get("model"), (*above, "model")
    if isinstance(model, dict):
        return table | {"model": network_of(text, model, place)}
    if not isinstance(model, str) or not model.endswith(SUFFIX):
        return table
    try:
        return table | {"model": read_network(find_file(model, folder))}
    except BadInput as error:
        raise text.error(place, error) from None


def find_file(name: str, folder: Path = Path()) -> Path:
    """Return the path of a file; raise BadInput for an unknown user's home."""
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as error:
        raise BadInput(f"cannot read {name}: {error}") from None


def read_network(path: Path) -> Model:
    """Read the network of a file. Its name is that in the file, or the file's, with a fingerprint.

    Raises:
        BadInput: see `with_network`.
    """
    text = TomlText.read(path)
    table = text.load()
    if not {"layers", "input", "classes"} & set(table):
        raise BadInput(
            f"{path} is not a network file: it has no layers; `polybench models lenet --format toml` prints an example"
        )
    return network_of(text, table, default_name=slug(path.stem))


def network_of(text: TomlText, table: Mapping[str, Any], above: KeyPath = (), default_name: str = "network") -> Model:
    """Build the network of a table.

    Args:
        text: the text with the table.
        table: the keys of a network file.
        above: key path of the table.
        default_name: name of a network without one.

    Raises:
        BadInput: see `with_network`.
    """
    reader = StructReader(text)
    network = reader.read(table, above, _Network, "key")
    content = _input(reader, network.input, (*above, "input"))
    shape, vocabulary = _shape(content)
    if math.prod(shape) > MAX_VALUES:
        by = " x ".join(map(str, shape))
        raise reader.text.error((*above, "input"), f"{by} are {math.prod(shape):,} values per input")
    layers = read_layers(reader, network.layers, network.blocks, above, shape, vocabulary, network.classes)
    training = reader.read(network.training, (*above, "training"), _Training, "key of training")
    model = Model(
        name=network.name or default_name,
        summary=network.summary,
        input_shape=shape,
        classes=network.classes,
        layers=layers,
        batch_size=training.batch_size,
        optimizer=_optimizer(reader, training, (*above, "training")),
        parity_batch_size=training.parity_batch_size or 1,
        initialization=network.initialization,
        published_parameters=network.parameters,
    )
    if network.parameters not in (None, model.parameters()):
        raise reader.text.error(
            (*above, "parameters"),
            f"the network has {model.parameters():,} parameters: expected {network.parameters:,}",
        )
    if training.parity_batch_size is None:
        model = msgspec.structs.replace(model, parity_batch_size=_parity_batch_size(model))
    return msgspec.structs.replace(model, name=f"{model.name}{FINGERPRINT_MARK}{fingerprint(model)}")


def fingerprint(model: Model) -> str:
    """Return the beginning of the SHA-256 of layers, input and training, without the name."""
    content = msgspec.structs.replace(model.without_name(), parity_batch_size=1)
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]


def file_name_of(model: Model) -> str:
    """Return a file name for the network."""
    return f"{model.name.partition(FINGERPRINT_MARK)[0]}{SUFFIX}"


def slug(name: str) -> str:
    """Return the valid network name closest to this text."""
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9_.-]", "-", name).lstrip("-_.")[:MAX_NAME_LENGTH] or "network"


def _input(reader: StructReader, table: Mapping[str, Any], place: KeyPath) -> _Images | _Tokens | _Features:
    for kind in _INPUTS:  # `length` alone is ambiguous
        if set(kind.__struct_fields__) & set(table) - {"length"}:
            return reader.read(table, place, kind, "key of input")
    raise reader.text.error(place, f"unknown input: expected {INPUTS}")


def _shape(content: _Images | _Tokens | _Features) -> tuple[Shape, int | None]:
    """Return the shape of one image or sequence, and the vocabulary size."""
    match content:
        case _Images():
            return (content.channels, content.height, content.width), None
        case _Tokens():
            return (content.length,), content.vocabulary
        case _Features():
            return (content.length, content.features), None


def _optimizer(reader: StructReader, training: _Training, place: KeyPath) -> Optimizer:
    names = ("learning_rate", "momentum", "weight_decay", "lr_schedule")
    given = {name: value for name in names if (value := getattr(training, name)) is not None}
    if training.optimizer == "momentum" and "momentum" not in given:
        given["momentum"] = OPTIMIZERS["momentum"].momentum
    try:
        return msgspec.structs.replace(OPTIMIZERS[training.optimizer], **given)
    except BadInput as error:
        key = "lr_schedule" if "schedule" in str(error) else "momentum"
        raise reader.text.error((*place, key), error) from None


def _parity_batch_size(model: Model) -> int:
    """Return a batch size for which a step of the reference takes about a second, within limits."""
    affordable = int(REFERENCE_RATE / max(1, training_macs(model)))
    return max(2, min(_MAX_PARITY_BATCH, affordable))
