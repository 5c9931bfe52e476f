"""Flux: the layers of a chain, which `julia/src/import.jl` reads from the user's file in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from polybench.engines.flux.julia import discovery
from polybench.engines.flux.julia.environment import environment, start_julia
from polybench.errors import BadInput
from polybench.importer.graph import Names, Node, Slot, Source, Translation, build, tied_owner
from polybench.networks import layers as spec
from polybench.networks.layers import Layer, Shape


class FluxModel:
    """A model of a Julia file, and Julia's module PolyBench. The file runs in the Julia of this process."""

    def __init__(self, file: Path, name: str) -> None:
        julia = discovery.find()
        discovery.check(julia)
        os.environ |= environment("cpu", 1, ())  # juliacall reads it at import
        main = start_julia(julia)
        main.seval("using Flux, PolyBench")
        self.polybench = main.PolyBench
        self.model = user_call(self.polybench.load_user_model, str(file), name)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Flux and Julia."""
        info = self.polybench.build_info()
        return {name: str(getattr(info, name)) for name in ("flux", "julia")}


class FluxTranslation(NamedTuple):
    """A translation, and the paths of the dropout layers in the chain by name."""

    translation: Translation
    dropouts: dict[str, str]


def translate(model: FluxModel, input_shape: Shape, name: str) -> FluxTranslation:
    """Translate a chain; BadInput has the layer or the function that polybench lacks, by its place."""
    described = user_call(
        model.polybench.describe_user_model, model.model, tuple(reversed(input_shape)), len(input_shape) == 1
    )
    description = json.loads(str(described))
    reader = _Reader()
    start = Node(None, (), input_shape, Source("input", name))
    output = reader.sequence(description["layers"], start)
    probabilities = reader.probabilities is not None
    if reader.probabilities not in (None, output):
        raise BadInput(f"{name}: a softmax before the end: expected it last, over the classes")
    translation = build(output, start, name, reader.notes, returns_probabilities=probabilities)
    translation.check_complete(description["trained"])
    return FluxTranslation(translation, reader.dropouts)


def user_call(function: Any, *arguments: object) -> Any:
    """Call a Julia function that runs the user's code; its error becomes BadInput."""
    import juliacall

    try:
        return function(*arguments)
    except juliacall.JuliaError as error:
        raise BadInput(discovery.first_error_line(error).removeprefix("ArgumentError: ")) from error


class _Reader:
    """Makes the nodes of the entries, in their order."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self.probabilities: Node | None = None
        self.dropouts: dict[str, str] = {}
        self._names = Names()
        self._owners: dict[str, Node] = {}

    def sequence(self, entries: Iterable[Mapping[str, Any]], x: Node) -> Node:
        """Add the layers after `x`, and return the last one."""
        for entry in entries:
            if "softmax" in entry:
                self.notes[
                    "the chain ends in a softmax; the network ends in its logits: the softmax is in the loss"
                ] = None
                self.probabilities = x
                continue
            source = Source(entry["operation"], entry["place"], entry.get("name", ""))
            if "branches" in entry:
                first, second = (self.sequence(branch, x) for branch in entry["branches"])
                x = Node(None, (first, second), first.shape, source, problem="expected a sum of two branches")
            else:
                x = self._layer(entry, source, x)
        return x

    def _layer(self, entry: Mapping[str, Any], source: Source, x: Node) -> Node:
        record = {key: value for key, value in entry["record"].items() if key != "table"}
        kind = record["type"]
        named = any(issubclass(one, spec.LayerBase) and one.__struct_config__.tag == kind for one in _NAMED)
        if named:
            record["name"] = self._names.unique(source.name, kind)
        slots = {tensor: _slot(*where) for tensor, where in _with_shapes(record, entry["tensors"]).items()}
        if kind == "dense" and (owner := tied_owner(self._owners, slots["weight"])):
            record |= {"tied": owner}
            del slots["weight"]
        try:
            layer: Layer = msgspec.convert(record, Layer)
            shape = layer.output_shape(x.shape)
        except ValueError as error:  # also msgspec's
            raise source.error(str(error)) from None
        if isinstance(layer, spec.Dropout):
            self.dropouts[layer.name] = source.place
        if isinstance(layer, spec.BatchNorm):
            self.notes["Flux's batch norm is that of polybench, with the running variance divided by n - 1"] = None
        node = Node(layer, (x,), shape, source, slots)
        if "weight" in slots:
            self._owners.setdefault(slots["weight"].variable, node)
        return node


_NAMED = spec.Named.__args__


def _with_shapes(record: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, tuple[str, Shape, bool]]:
    """Return variable, canonical shape and conversion of each tensor."""
    if not tensors:
        return {}
    layer: Any = msgspec.convert(record, Layer)
    shapes = layer.weight_shapes() | layer.state_shapes()
    return {name: (variable, shapes[name], converts) for name, (variable, converts) in tensors.items()}


def _slot(variable: str, shape: Shape, converts: bool) -> Slot:
    """Return the place of a canonical tensor in Flux's array, as NumPy sees its memory.

    Flux flips the kernels of a convolution, and stores a matrix as (in, out); see `canonical` in `julia/src/import.jl`.
    """
    positions = np.arange(np.prod(shape))
    if converts and len(shape) == 2:
        return Slot(variable, positions.reshape(shape[::-1]).T)
    positions = positions.reshape(shape)
    return Slot(variable, positions[:, :, ::-1, ::-1] if converts and len(shape) == 4 else positions)
