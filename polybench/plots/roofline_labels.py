"""The names of layers along a logarithmic axis, where none covers another."""

from __future__ import annotations

import math
from collections.abc import Sequence

Named = tuple[str, float]
"""A layer, and where it is on the axis."""

_APART = 13.0
"""px from one upright line of text to the next."""


def labels(named: Sequence[Named], extent: tuple[float, float], width: float) -> list[tuple[float, str]]:
    """Where to write which text: layers that are too near to each other share one, at their middle.

    Args:
        named: layers, those of one name at any number of places.
        extent: of the axis.
        width: of the axis, px.
    """
    low, high = map(math.log10, extent)
    scale = width / (high - low)
    places = sorted((math.log10(x) * scale, name) for name, x in dict.fromkeys(named))
    groups: list[list[tuple[float, str]]] = []
    for place in places:
        if groups and place[0] - groups[-1][-1][0] < _APART:
            groups[-1].append(place)
        else:
            groups.append([place])
    order = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in named))}
    return [
        (10 ** (sum(x for x, _ in group) / len(group) / scale), _shared([name for _, name in group], order))
        for group in groups
    ]


def _shared(names: list[str], order: dict[str, int]) -> str:
    """In the order of the network; of many the first, and how many more."""
    plain = [name.removesuffix(" + relu") for name in sorted(set(names), key=order.__getitem__)]
    if len(plain) <= 2:
        return ", ".join(plain)
    return f"{plain[0]} and {len(plain) - 1} more"
