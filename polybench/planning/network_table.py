"""Writes a network as the table or text of a network file, which `network_file` reads back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import tomli_w

from polybench.networks.layers import Layer
from polybench.networks.model import Model
from polybench.planning.network_file import FINGERPRINT_MARK, slug


def network_table(model: Model) -> dict[str, Any]:
    """Return the keys and values of the file, with all defaults."""
    optimizer = msgspec.to_builtins(model.optimizer)
    training = {"batch_size": model.batch_size, "parity_batch_size": model.parity_batch_size}
    table = {
        "name": slug(model.name.partition(FINGERPRINT_MARK)[0]),
        "summary": model.summary,
        "classes": model.classes,
        "initialization": model.initialization,
        "parameters": model.published_parameters,
        "input": _input(model),
        "layers": _tables(model.layers),
        "training": training | {"optimizer": optimizer.pop("name")} | optimizer,
    }
    made: dict[str, Any] = _without_none(table)
    return made


def network_toml(model: Model) -> str:
    """Return the text of the file, with a line per layer."""
    table = network_table(model)
    layers, training = table.pop("layers"), table.pop("training")
    lines = [f"{key} = {_inline(value)}" for key, value in table.items()]
    lines += ["", "layers = [", *_lines(layers, "  "), "]", "", "[training]"]
    return "\n".join([*lines, *(f"{key} = {_inline(value)}" for key, value in training.items())]) + "\n"


def _input(model: Model) -> dict[str, int | None]:
    match model.input_shape:
        case (channels, height, width):
            return {"channels": channels, "height": height, "width": width}
        case (length, features):
            return {"features": features, "length": length}
        case (length,):
            return {"vocabulary": model.vocabulary_size, "length": length}
    raise ValueError(f"a network file cannot describe an input of shape {model.input_shape}")


def _tables(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = msgspec.to_builtins(list(layers))
    return made


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


def _without_none(value: Any) -> Any:
    """Remove None values, because TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list | tuple) else value
