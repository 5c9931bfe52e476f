"""Reads and writes network files: custom networks as TOML. Every error names the file and the line.

docs/guides/own_network.md has an example.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import tomli_w
from msgspec import Meta

from polybench.errors import BadInput
from polybench.networks.model import LabelSmoothing, Model
from polybench.networks.network_layers import MAX_VALUES, LayerReader, format_shape
from polybench.networks.optimizers import (
    OPTIMIZERS,
    Beta,
    LearningRateSchedule,
    Momentum,
    Optimizer,
    OptimizerName,
    Rate,
    Steps,
    WeightDecay,
)
from polybench.networks.toml_text import KeyPath, TomlText

FINGERPRINT_MARK = "~"
"""Separates a network's name from the beginning of the SHA-256 of its content."""

REFERENCE_RATE = 0.5e9
"""Multiply-adds per second of the float64 reference, which has one thread."""

_MAX_NAME_LENGTH = 40
_MAX_PARITY_BATCH = 16

_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$(?!\n)", max_length=_MAX_NAME_LENGTH)]
_Summary = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)", max_length=200)]
_PositiveInt = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_Length = Annotated[int, Meta(ge=1, le=1 << 16)]


class _Network(msgspec.Struct, frozen=True):
    """The keys of a file. `parameters` is the expected number of parameters."""

    classes: Annotated[int, Meta(ge=2, le=256)]
    input: dict[str, Any]
    layers: list[Any]
    name: _Name | None = None
    summary: _Summary = "a custom network"
    initialization: Literal["glorot", "he"] = "glorot"
    parameters: _PositiveInt | None = None
    training: dict[str, Any] = {}
    blocks: dict[str, Any] = {}


class _Images(msgspec.Struct, frozen=True):
    channels: Literal[1, 3]
    height: Annotated[int, Meta(ge=1, le=9999)]
    width: Annotated[int, Meta(ge=1, le=9999)]


class _Tokens(msgspec.Struct, frozen=True):
    vocabulary: Annotated[int, Meta(ge=1, le=1 << 24)]
    length: _Length


class _Features(msgspec.Struct, frozen=True):
    features: _Length
    length: _Length


class _Training(msgspec.Struct, frozen=True):
    """Default training settings of the network."""

    batch_size: _PositiveInt = 128
    parity_batch_size: _PositiveInt | None = None
    label_smoothing: LabelSmoothing = 0.0
    optimizer: OptimizerName = "momentum"
    learning_rate: Rate | None = None
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    lr_schedule: LearningRateSchedule | None = None
    betas: tuple[Beta, Beta] | None = None
    gradient_clip: WeightDecay | None = None
    warmup_steps: Steps | None = None
    cosine_steps: Steps | None = None
    min_learning_rate: WeightDecay | None = None


def network_of(text: TomlText, table: Mapping[str, Any], above: KeyPath = (), default_name: str = "network") -> Model:
    """Build the network of a table at the key path `above`; BadInput has the text's name and the line.

    Its name is that in the table, or the default, with a fingerprint.
    """
    network = text.read_struct(table, above, _Network, "key")
    place = (*above, "input")
    shape: tuple[int, ...]
    vocabulary = None
    match _read_input(text, network.input, place):
        case _Images() as images:
            shape = images.channels, images.height, images.width
        case _Tokens() as tokens:
            shape, vocabulary = (tokens.length,), tokens.vocabulary
        case _Features() as sequence:
            shape = sequence.length, sequence.features
    if math.prod(shape) > MAX_VALUES:
        raise text.error(place, f"{format_shape(shape)} are {math.prod(shape):,} values per input")
    training = text.read_struct(network.training, (*above, "training"), _Training, "key of training")
    model = Model(
        name=network.name or default_name,
        summary=network.summary,
        input_shape=shape,
        classes=network.classes,
        layers=LayerReader(text, above, network.blocks, vocabulary).read(network.layers, shape, network.classes),
        batch_size=training.batch_size,
        optimizer=_optimizer(text, training, (*above, "training")),
        parity_batch_size=training.parity_batch_size or 1,
        initialization=network.initialization,
        label_smoothing=training.label_smoothing,
        published_parameters=network.parameters,
    )
    if network.parameters not in (None, model.parameters()):
        problem = f"the network has {model.parameters():,} parameters: expected {network.parameters:,}"
        raise text.error((*above, "parameters"), problem)
    if training.parity_batch_size is None:  # a step of the reference takes about a second
        affordable = int(REFERENCE_RATE / max(1, model.training_macs()))
        batch_size = max(2, min(_MAX_PARITY_BATCH, affordable))
        model = msgspec.structs.replace(model, parity_batch_size=batch_size)
    return with_fingerprint(model)


def _read_input(text: TomlText, table: Mapping[str, Any], place: KeyPath) -> _Images | _Tokens | _Features:
    kinds: tuple[type[_Images | _Tokens | _Features], ...] = (_Images, _Tokens, _Features)
    for kind in kinds:  # `length` alone is ambiguous
        if set(kind.__struct_fields__) & set(table) - {"length"}:
            return text.read_struct(table, place, kind, "key of input")
    inputs = "channels, height and width of images; vocabulary and length of tokens; features and length"
    raise text.error(place, f"unknown input: expected {inputs}")


def _optimizer(text: TomlText, training: _Training, place: KeyPath) -> Optimizer:
    names = [name for name in Optimizer.__struct_fields__ if name != "name"]
    given = {name: value for name in names if (value := getattr(training, name)) is not None}
    if training.optimizer == "momentum" and "momentum" not in given:
        given["momentum"] = OPTIMIZERS["momentum"].momentum
    try:
        return msgspec.structs.replace(OPTIMIZERS[training.optimizer], **given)
    except BadInput as error:
        keys = ("betas", "min_learning_rate", "lr_schedule", "cosine_steps", "momentum")
        key = next((key for key in keys if key in str(error)), "lr_schedule")
        raise text.error((*place, key), error) from None


def with_fingerprint(model: Model) -> Model:
    """Add the beginning of the SHA-256 of layers, input and training to the name."""
    content = msgspec.structs.replace(model.without_name(), parity_batch_size=1)
    fingerprint = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]
    return msgspec.structs.replace(model, name=f"{model.name}{FINGERPRINT_MARK}{fingerprint}")


def slug(name: str) -> str:
    """Return the valid network name closest to this text."""
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9_.-]", "-", name).lstrip("-_.")[:_MAX_NAME_LENGTH] or "network"


def network_table(model: Model) -> dict[str, Any]:
    """Return the keys and values of the file of a network, with all defaults."""
    content: dict[str, int | None]
    match model.input_shape:
        case (channels, height, width):
            content = {"channels": channels, "height": height, "width": width}
        case (length, features):
            content = {"features": features, "length": length}
        case (length,):
            content = {"vocabulary": model.vocabulary_size, "length": length}
    optimizer = msgspec.to_builtins(model.optimizer)
    training: dict[str, Any] = {"batch_size": model.batch_size, "parity_batch_size": model.parity_batch_size}
    training["label_smoothing"] = model.label_smoothing
    table = {
        "name": slug(model.name.partition(FINGERPRINT_MARK)[0]),
        "summary": model.summary,
        "classes": model.classes,
        "initialization": model.initialization,
        "parameters": model.published_parameters,
        "input": content,
        "layers": msgspec.to_builtins(list(model.layers)),
        "training": training | {"optimizer": optimizer.pop("name")} | optimizer,
    }
    made: dict[str, Any] = without_none(table)
    return made


def network_toml(model: Model) -> str:
    """Return the text of the file of a network, with a line per layer."""
    table = network_table(model)
    layers, training = table.pop("layers"), table.pop("training")
    lines = [f"{key} = {_inline(value)}" for key, value in table.items()]
    lines += ["", "layers = [", *_lines(layers, "  "), "]", "", "[training]"]
    return "\n".join([*lines, *(f"{key} = {_inline(value)}" for key, value in training.items())]) + "\n"


def _lines(layers: Sequence[Mapping[str, Any]], indent: str) -> Iterator[str]:
    """Yield a line per layer; a residual block has lines around those of its layers."""
    for layer in layers:
        if layer["type"] != "residual":
            yield f"{indent}{_inline(layer)},"
            continue
        yield f'{indent}{{ type = "residual", body = ['
        yield from _lines(layer["body"], f"{indent}  ")
        if layer["shortcut"]:
            yield f"{indent}], shortcut = ["
            yield from _lines(layer["shortcut"], f"{indent}  ")
        yield f"{indent}] }},"


def _inline(value: Any) -> str:
    """Format a value on one line."""
    match value:
        case dict():
            return f"{{ {', '.join(f'{key} = {_inline(part)}' for key, part in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_inline, value))}]"
        case _:
            return tomli_w.dumps({"x": value}).removeprefix("x = ").removesuffix("\n")


def without_none(value: Any) -> Any:
    """Remove None values, because TOML has no null."""
    if isinstance(value, dict):
        return {key: without_none(part) for key, part in value.items() if part is not None}
    return [without_none(part) for part in value] if isinstance(value, list | tuple) else value
