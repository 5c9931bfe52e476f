"""Placement of layer names along a logarithmic axis, without overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence

LayerPosition = tuple[str, float]
"""A layer's name, and its position on the axis."""

_MIN_DISTANCE = 13.0
"""Distance between vertical lines of text in pixels."""


def place_labels(layers: Sequence[LayerPosition], axis: tuple[float, float], width: float) -> list[tuple[float, str]]:
    """Compute positions and texts; layers close to each other share a label at their centre.

    Args:
        layers: a name may occur at several positions.
        axis: range of the axis.
        width: of the axis in pixels.
    """
    low, high = map(math.log10, axis)
    scale = width / (high - low)
    positions = sorted((math.log10(x) * scale, name) for name, x in dict.fromkeys(layers))
    groups: list[list[tuple[float, str]]] = []
    for position in positions:
        if groups and position[0] - groups[-1][-1][0] < _MIN_DISTANCE:
            groups[-1].append(position)
        else:
            groups.append([position])
    order = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in layers))}
    return [
        (10 ** (sum(x for x, _ in group) / len(group) / scale), _combine([name for _, name in group], order))
        for group in groups
    ]


def _combine(names: list[str], order: dict[str, int]) -> str:
    """Join up to two names in network order; of more, name the first and count the others."""
    plain = [name.removesuffix(" + relu") for name in sorted(set(names), key=order.__getitem__)]
    if len(plain) <= 2:
        return ", ".join(plain)
    return f"{plain[0]} and {len(plain) - 1} more"
