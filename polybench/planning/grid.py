"""Expands a sweep: one study per combination of values of a few fields."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import msgspec

from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks.model import Model
from polybench.planning.plan import resolve
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import Study, SweepCommand, WorkerCount

MODEL_NAME_AXES = ("depth", "resolution", "length")
"""Axes that are part of a model's name: the N of `NAME-N`, such as catdog's, and the SIZE of `NAME@SIZE`, pixels of an
image's side or positions of a sequence."""

AXES = ("batch_size", "threads", *MODEL_NAME_AXES, "loader_workers", "augment")
"""Fields that a sweep can vary. Engines, devices and precisions vary within each study, as configurations.
`augment` is 0 or 1."""

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Default batch sizes for the fixed overhead of a step: from dominant to negligible."""


_TYPES = get_type_hints(Study, include_extras=True)
"""Types of the fields of a study, with their bounds."""

MAX_POINTS = 10_000
"""Maximum points of a sweep."""


class SweepSpec(NamedTuple):
    """A study and the values to sweep, by axis; `command` renders the sweep."""

    study: Study
    axes: Mapping[str, Sequence[int]]
    command: SweepCommand = "sweep"
    study_file: StudyFileMetadata = NO_METADATA


class GridPoint(NamedTuple):
    """A study of a sweep, and its values of the varied fields."""

    values: dict[str, int]
    study: Study


def points(study: Study, axes: Mapping[str, Sequence[int]]) -> list[GridPoint]:
    """Return every combination of the values by axis, the last axis fastest; points share the budget equally.

    The parity check runs once per model, at its first point, because batch size and threads do not affect it.
    Raises BadInput if nothing is varied, a value is repeated, or a point is not a valid study.
    """
    if not axes:
        options = ", ".join(_option(axis) for axis in AXES if axis != "augment")
        raise BadInput(f"nothing is varied: give several values to one of {options}, such as --batch-size 1,8,32")
    if "resolution" in axes and "length" in axes:
        raise BadInput("--resolution is for images, --length for sequences: expected one of them")
    for axis, several in axes.items():
        lookup_or_suggest(axis, dict.fromkeys(AXES), "field of a sweep")
        _check(axis, several)
    if (count := math.prod(map(len, axes.values()))) > MAX_POINTS:
        raise BadInput(f"the sweep has {count:,} points: expected at most {MAX_POINTS:,}: give fewer values")
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*(axes.values()))]
    checked: set[str | Model] = set()
    made = []
    for values in combinations:
        fields: dict[str, Any] = {axis: value for axis, value in values.items() if axis not in MODEL_NAME_AXES}
        if "augment" in fields:
            fields["augment"] = bool(fields["augment"])
        fields["model"] = _model(study.model, values)
        point = msgspec.structs.replace(study, budget=study.budget / len(combinations), **fields)
        if point.model in checked:
            point = msgspec.structs.replace(point, parity=False)
        checked.add(point.model)
        resolve(point)  # reports errors in any point before the first is measured
        made.append(GridPoint(values, point))
    return made


def _option(axis: str) -> str:
    return f"--{axis.replace('_', '-')}"


def _check(axis: str, values: Sequence[int]) -> None:
    if not values:
        raise BadInput(f"{_option(axis)} has no value")
    if len(set(values)) < len(values):
        raise BadInput(f"{_option(axis)} repeats a value: {','.join(map(str, values))}")
    if axis == "augment" and not {*values} <= {0, 1}:
        raise BadInput(f"{_option(axis)} {max(values)}: expected 0 or 1")
    for value in values if axis != "augment" else ():
        try:
            msgspec.convert(value, WorkerCount if axis in MODEL_NAME_AXES else _TYPES[axis])
        except msgspec.ValidationError as error:
            raise BadInput(f"{_option(axis)} {value}: {error}") from None


def _model(model: str | Model, values: Mapping[str, int]) -> str | Model:
    """Return the network of a point, whose name contains some of the values."""
    if isinstance(model, Model):
        for axis in values:
            if axis in MODEL_NAME_AXES:
                raise BadInput(f"{_option(axis)}: the file of {model.name} fixes it; write one file per value")
        return model
    name, _, size = model.partition("@")
    if "depth" in values:
        name = f"{re.sub(r'-[0-9]+$', '', name)}-{values['depth']}"
    size = str(values.get("resolution", values.get("length", size)))
    return f"{name}@{size}" if size else name
