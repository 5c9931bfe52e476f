"""A sweep: one study again and again, with other values of a few of its fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.planning.plan import resolve

AXES = ("batch_size", "threads", "depth", "resolution", "workers", "augment")
"""What may be varied. Engines, devices and precisions vary within each study: they are cells. `depth` is the
N of a model `NAME-N`, as catdog's, `resolution` the SIZE of `NAME@SIZE`; the others are the study's fields,
`augment` as 0 or 1."""

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""For the fixed cost of a step: from where it is most of it to where it is little."""


class Point(NamedTuple):
    """One study of the sweep, and what is its own about it."""

    values: dict[str, int]
    study: Study


def points(study: Study, axes: Mapping[str, Sequence[int]]) -> list[Point]:
    """Every combination of the values, the last axis fastest; each has its part of the budget.

    The identity check is done once a model, at the first of its points: neither batch size nor threads change
    what it computes with.

    Args:
        study: what all points share.
        axes: of AXES, each with its values.

    Raises:
        BadInput: nothing is varied, a value comes twice, or a point is no valid study.
    """
    if not axes:
        options = ", ".join(_option(axis) for axis in AXES if axis != "augment")
        raise BadInput(f"nothing is varied; give several values to one of {options}: --batch-size 1,8,32")
    for axis, several in axes.items():
        pick(axis, dict.fromkeys(AXES), "field of a sweep")
        _check(axis, several)
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*(axes.values()))]
    checked: set[str | Model] = set()
    made = []
    for values in combinations:
        point = _at(study, values, len(combinations))
        if point.model in checked:
            point = msgspec.structs.replace(point, parity=False)
        checked.add(point.model)
        resolve(point)  # what is wrong with the last point is said before the first is measured
        made.append(Point(values, point))
    return made


def _option(axis: str) -> str:
    return f"--{axis.replace('_', '-')}"


def _check(axis: str, values: Sequence[int]) -> None:
    if not values:
        raise BadInput(f"{_option(axis)} has no value")
    if len(set(values)) < len(values):
        raise BadInput(f"{_option(axis)} has a value twice: {','.join(map(str, values))}")
    least = 0 if axis in ("workers", "augment") else 1
    if min(values) < least:
        raise BadInput(f"{_option(axis)} {min(values)}: at least {least}")
    if axis == "augment" and max(values) > 1:
        raise BadInput(f"{_option(axis)} {max(values)}: 0 or 1")


def _at(study: Study, values: Mapping[str, int], parts: int) -> Study:
    fields: dict[str, Any] = {
        axis: value for axis, value in values.items() if axis not in ("depth", "resolution")
    }
    if "augment" in fields:
        fields["augment"] = bool(fields["augment"])
    fields["model"] = _model(study.model, values)
    return msgspec.structs.replace(study, budget=study.budget / parts, **fields)


def _model(model: str | Model, values: Mapping[str, int]) -> str | Model:
    """The network of a point: `depth` and `resolution` are parts of its name."""
    if isinstance(model, Model):
        for axis in values:
            if axis in ("depth", "resolution"):
                raise BadInput(f"{_option(axis)}: {model.name} is what its file says; write a file for each")
        return model
    name, _, size = model.partition("@")
    if "depth" in values:
        name = f"{re.sub(r'-[0-9]+$', '', name)}-{values['depth']}"
    size = str(values.get("resolution", size))
    return f"{name}@{size}" if size else name
