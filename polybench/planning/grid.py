"""A sweep: one study again and again, with other values of a few of its fields."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.planning.plan import resolve

AXES = ("batch_size", "threads", "depth", "workers")
"""What may be varied. Engines, devices and precisions vary within each study: they are cells. `depth` is the
N of a model `NAME-N`, as catdog's; the others are the study's fields."""

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
        options = ", ".join(f"--{axis.replace('_', '-')}" for axis in AXES)
        raise BadInput(f"nothing is varied; give several values to one of {options}: --batch-size 1,8,32")
    for axis, several in axes.items():
        _check(f"--{axis.replace('_', '-')}", several, least=0 if axis == "workers" else 1)
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*(axes.values()))]
    checked: set[str] = set()
    made = []
    for values in combinations:
        point = _at(study, values, len(combinations))
        if point.model in checked:
            point = msgspec.structs.replace(point, parity=False)
        checked.add(point.model)
        resolve(point)  # what is wrong with the last point is said before the first is measured
        made.append(Point(values, point))
    return made


def _check(option: str, values: Sequence[int], least: int) -> None:
    if len(set(values)) < len(values):
        raise BadInput(f"{option} has a value twice: {','.join(map(str, values))}")
    if min(values) < least:
        raise BadInput(f"{option} {min(values)}: at least {least}")


def _at(study: Study, values: Mapping[str, int], parts: int) -> Study:
    fields: dict[str, Any] = {axis: value for axis, value in values.items() if axis != "depth"}
    if "depth" in values:
        fields["model"] = f"{study.model.partition('-')[0]}-{values['depth']}"
    return msgspec.structs.replace(study, budget=study.budget / parts, **fields)
