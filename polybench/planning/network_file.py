"""Network files: a network of the user's own, as TOML. Every error names the file and the line.

`network_layers` reads the layers, `network_table` writes such a file; docs/guides/own_network.md shows one.
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

from polybench.core.arithmetic import training_multiply_adds
from polybench.core.errors import BadInput
from polybench.core.layer_base import Shape
from polybench.core.model import Model
from polybench.core.optimizers import OPTIMIZERS, Momentum, Optimizer, Rate, Schedule, WeightDecay
from polybench.core.spec import PositiveInt, Study
from polybench.planning.estimate import REFERENCE_RATE
from polybench.planning.network_layers import MOST_VALUES, read_layers
from polybench.planning.network_values import Tables
from polybench.planning.toml_text import Place, TomlText

SUFFIX = ".toml"
"""By which a file is told from the name of a network."""

IDENTITY = "~"
"""Stands between a network's own name and the beginning of the SHA-256 of what it is."""

LONGEST_NAME = 40

T = TypeVar("T")
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$(?!\n)", max_length=LONGEST_NAME)]
_Summary = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)", max_length=200)]


class _Network(msgspec.Struct, frozen=True):
    """The keys of a file. `parameters` is how many there should be, to which the network is held."""

    classes: Annotated[int, Meta(ge=2, le=256)]
    input: dict[str, Any]
    layers: list[Any]
    name: _Name | None = None
    summary: _Summary = "a network of your own"
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
"""What may be said of the input."""


class _Training(msgspec.Struct, frozen=True):
    """What it is trained with where a study does not say something else."""

    batch_size: PositiveInt = 128
    parity_batch_size: PositiveInt | None = None
    optimizer: Literal["sgd", "momentum", "nesterov", "adam", "rmsprop"] = "momentum"
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    schedule: Schedule | None = None


_LARGEST_PARITY_BATCH = 16


def with_network(study: Study, folder: Path = Path()) -> Study:
    """The study with the network itself, where its `model` is a file; a relative one is sought in `folder`.

    Raises:
        BadInput: the file cannot be read, or is no network; the message has its name and the line.
    """
    model = study.model
    if isinstance(model, Model) or not model.endswith(SUFFIX):
        return study
    return msgspec.structs.replace(study, model=read_network(place_of(model, folder)))


def with_network_of(
    text: TomlText, table: dict[str, Any], above: Place = (), folder: Path = Path()
) -> dict[str, Any]:
    """The fields of a study with the network itself, where `model` is a table or names a file.

    Args:
        text: that the fields come from.
        table: the fields.
        above: its place in the text.
        folder: where a relative name of a file is sought.

    Raises:
        BadInput: with the lines in both files.
    """
    model, place = table.get("model"), (*above, "model")
    if isinstance(model, dict):
        return table | {"model": network_of(text, model, place)}
    if not isinstance(model, str) or not model.endswith(SUFFIX):
        return table
    try:
        return table | {"model": read_network(place_of(model, folder))}
    except BadInput as error:
        raise text.error(place, error) from None


def place_of(name: str, folder: Path = Path()) -> Path:
    """Where the file of this name is; raises BadInput for a home of nobody."""
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as error:
        raise BadInput(f"cannot read {name}: {error}") from None


def read_network(path: Path) -> Model:
    """The network of a file, called by the name in it, or else the file's, and by what it is.

    Raises:
        BadInput: as `with_network`.
    """
    text = TomlText.read(path)
    table = text.load()
    if not {"layers", "input", "classes"} & set(table):
        raise BadInput(
            f"{path} is no network: it has no layers; `polybench models lenet --format toml` prints one"
        )
    return network_of(text, table, default_name=slug(path.stem))


def network_of(
    text: TomlText, table: Mapping[str, Any], above: Place = (), default_name: str = "network"
) -> Model:
    """The network that a table describes.

    Args:
        text: that it comes from.
        table: with the keys of a network file.
        above: its place in the text.
        default_name: where it says none.

    Raises:
        BadInput: as `with_network`.
    """
    tables = Tables(text)
    network = tables.read(table, above, _Network, "key")
    said = _input(tables, network.input, (*above, "input"))
    shape, vocabulary = _shape(said)
    if math.prod(shape) > MOST_VALUES:
        by = " x ".join(map(str, shape))
        raise tables.text.error((*above, "input"), f"{by} are {math.prod(shape):,} values for one input")
    layers = read_layers(tables, network.layers, network.blocks, above, shape, vocabulary, network.classes)
    training = tables.read(network.training, (*above, "training"), _Training, "key of training")
    model = Model(
        name=network.name or default_name,
        summary=network.summary,
        input_shape=shape,
        classes=network.classes,
        layers=layers,
        batch_size=training.batch_size,
        optimizer=_optimizer(tables, training, (*above, "training")),
        parity_batch_size=training.parity_batch_size or 1,
        initialization=network.initialization,
        published_parameters=network.parameters,
    )
    if network.parameters not in (None, model.parameters()):
        raise tables.text.error(
            (*above, "parameters"),
            f"the network has {model.parameters():,} parameters, not {network.parameters:,}",
        )
    if training.parity_batch_size is None:
        model = msgspec.structs.replace(model, parity_batch_size=_parity_batch_size(model))
    return msgspec.structs.replace(model, name=f"{model.name}{IDENTITY}{identity(model)}")


def identity(model: Model) -> str:
    """The beginning of the SHA-256 of what it computes and how it is trained, whatever it is called."""
    content = msgspec.structs.replace(model.unnamed(), parity_batch_size=1)
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]


def file_of(model: Model) -> str:
    """What its file may be called."""
    return f"{model.name.partition(IDENTITY)[0]}{SUFFIX}"


def slug(name: str) -> str:
    """A name that a network may have, like this one."""
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9_.-]", "-", name).lstrip("-_.")[:LONGEST_NAME] or "network"


def _input(tables: Tables, table: Mapping[str, Any], place: Place) -> _Images | _Tokens | _Features:
    for kind in _INPUTS:  # `length` alone says neither
        if set(kind.__struct_fields__) & set(table) - {"length"}:
            return tables.read(table, place, kind, "key of input")
    raise tables.text.error(place, f"the input says {INPUTS}")


def _shape(said: _Images | _Tokens | _Features) -> tuple[Shape, int | None]:
    """The shape of one image or sequence, and how many tokens there are."""
    match said:
        case _Images():
            return (said.channels, said.height, said.width), None
        case _Tokens():
            return (said.length,), said.vocabulary
        case _Features():
            return (said.length, said.features), None


def _optimizer(tables: Tables, training: _Training, place: Place) -> Optimizer:
    names = ("learning_rate", "momentum", "weight_decay", "schedule")
    given = {name: value for name in names if (value := getattr(training, name)) is not None}
    if training.optimizer == "momentum" and "momentum" not in given:
        given["momentum"] = OPTIMIZERS["momentum"].momentum
    try:
        return msgspec.structs.replace(OPTIMIZERS[training.optimizer], **given)
    except BadInput as error:
        key = "schedule" if "schedule" in str(error) else "momentum"
        raise tables.text.error((*place, key), error) from None


def _parity_batch_size(model: Model) -> int:
    """So many that a step of the reference takes about a second, as far as that is possible."""
    affordable = int(REFERENCE_RATE / max(1, training_multiply_adds(model)))
    return max(2, min(_LARGEST_PARITY_BATCH, affordable))
