"""Pairs the tensors of two trainings: by values where these agree, else by shape, name and order."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.trace.file import Array, Trace

Axes = tuple[int, ...]

_EQUAL = 1e-5
"""Largest relative error of tensors that count as equal."""

_MAX_MAP_BYTES = 1 << 24

_MAX_AXES = 6
"""Axes of a weight whose orders are tried."""

_SYNONYMS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "scale": "weight", "w": "weight", "b": "bias"}
_USUAL_AXES: Mapping[str, Mapping[int, Axes]] = {  # framework -> number of axes -> axes of the PyTorch layout
    "keras": {4: (3, 2, 0, 1), 2: (1, 0)},
    "flux": {2: (1, 0)},
    "lux": {2: (1, 0)},
}


class Layout(NamedTuple):
    """The way a tensor of B becomes its counterpart in A: axes in A's order, flipped, then columns in A's order."""

    axes: Axes
    flipped: Axes = ()
    columns: tuple[int, ...] | None = None

    def apply(self, tensor: Array) -> Array:
        """Return the tensor of B in the layout of A."""
        moved = np.flip(tensor.transpose(self.axes), self.flipped)
        return moved if self.columns is None else moved[:, self.columns]

    @property
    def text(self) -> str:
        """The layout in words; empty if it is the same."""
        words = [] if self.axes == tuple(range(len(self.axes))) else [f"axes {', '.join(map(str, self.axes))}"]
        words += ["flipped"] if self.flipped else []
        words += ["columns reordered"] if self.columns else []
        return "; ".join(words)


class Pair(NamedTuple):
    """A tensor of A with its counterpart in B."""

    a: str
    b: str
    layout: Layout


def relative_error(a: Array | float, b: Array | float) -> float:
    """Return norm(a - b) / norm(a), or norm(b) if a is zero; 0 if both are."""
    a, b = (np.ravel(np.asarray(one, "float64")) for one in (a, b))
    scale = float(np.linalg.norm(a)) or float(np.linalg.norm(b))
    difference = float(np.linalg.norm(a - b))
    return difference / scale if scale else 0.0


def read_map(path: Path | None) -> dict[str, str]:
    """Read a TOML file of lines `"name in A" = "name in B"`."""
    if path is None:
        return {}
    try:
        table = tomllib.loads(read_regular_file(path, _MAX_MAP_BYTES).decode())
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise BadInput(f'--map {path}: {problem}: expected a file of lines "name in A" = "name in B"') from error
    if len({*map(str, table.values())}) < len(table):
        raise BadInput(f"--map {path}: two lines name the same weight of B: expected a line for each")
    if wrong := [name for name, value in table.items() if not isinstance(value, str)]:
        raise BadInput(f'--map {path}: {wrong[0]}: expected a line "name in A" = "name in B"')
    return table


def pair_weights(a: Trace, b: Trace, given: Mapping[str, str]) -> list[Pair]:
    """Pair the initial weights of two traces, in the order of A.

    Raises:
        BadInput: a tensor has no counterpart, or `given` names one that does not exist.
    """
    weights, others = a.tensors(0, "weight"), b.tensors(0, "weight")
    for name, other in given.items():
        for trace, one, tensors in ((a, name, weights), (b, other, others)):
            if one not in tensors:
                raise BadInput(f"--map: {trace.path} has no weight {one!r}; its weights are: {', '.join(tensors)}")
    if len(weights) != len(others):
        counts = f"{a.path} has {len(weights)} weights, {b.path} has {len(others)}"
        raise BadInput(f"{counts}: expected the same number; both must be the same network")
    pairs, free = [], [name for name in others if name not in given.values()]
    order = {name: position for position, name in enumerate(others)}
    for position, (name, weight) in enumerate(weights.items()):
        candidates = [given[name]] if name in given else free
        ranked = []
        for other in candidates:
            layout = _find_layout(weight, others[other], b.header.framework)
            if layout is not None:
                differs = relative_error(weight, layout.apply(others[other])) > _EQUAL
                is_renamed = _plain_name(name) != _plain_name(other)
                ranked.append((differs, is_renamed, abs(order[other] - position), other, layout))
        if not ranked:
            shape = "x".join(map(str, weight.shape))
            raise BadInput(f"{a.path}: weight {name!r} ({shape}) has no counterpart in {b.path}: write it into a --map")
        *_, other, layout = min(ranked)
        pairs.append(Pair(name, other, layout))
        if other in free:
            free.remove(other)
    return pairs


def pair_statistics(a: Trace, b: Trace) -> list[Pair]:
    """Pair running statistics of one shape, the surest pairs first; one without a counterpart is in no pair.

    A pair is surer if both are means or both variances, if the names agree, if the values before step 0 are equal, and
    if both have the same place among the statistics of their kind.
    """
    ranked = []
    for one, (kind, place, values) in _describe_statistics(a).items():
        for other, (other_kind, other_place, other_values) in _describe_statistics(b).items():
            if values.shape == other_values.shape:
                is_renamed = _plain_name(one) != _plain_name(other)
                differs = relative_error(values, other_values) > _EQUAL
                ranked.append((kind != other_kind, is_renamed, differs, abs(place - other_place), one, other))
    pairs: dict[str, Pair] = {}
    for *_, one, other in sorted(ranked):
        if one not in pairs and other not in {pair.b for pair in pairs.values()}:
            pairs[one] = Pair(one, other, Layout(tuple(range(len(a.shapes(0, "statistic")[one])))))
    return [pairs[one] for one in a.names(0, "statistic") if one in pairs]


def is_variance(name: str, values: Array | None = None) -> bool:
    """Return True for a running variance: by its name, or else by values that are all positive before step 0."""
    words = name.lower()
    if "var" in words or words.endswith("σ²"):
        return True
    return values is not None and "mean" not in words and not words.endswith("μ") and bool((values > 0).all())


def _describe_statistics(trace: Trace) -> dict[str, tuple[bool, int, Array]]:
    """Return for each running statistic: True for a variance, its place among these, and its values before step 0."""
    described: dict[str, tuple[bool, int, Array]] = {}
    for name, values in trace.tensors(0, "statistic").items():
        kind = is_variance(name, values)
        described[name] = kind, sum(one[0] == kind for one in described.values()), values
    return described


def _plain_name(name: str) -> str:
    """Return a weight's name with the words of one framework: `sequential/conv1/kernel` becomes `conv1.weight`."""
    parts = [_SYNONYMS.get(part, part) for part in re.split(r"[/.]", name.lower())]
    return ".".join(parts[-2:])


def _find_layout(a: Array, b: Array, framework: str) -> Layout | None:
    """Find how B's tensor becomes A's; without equal values the usual layout of the framework; None if none fits."""
    if b.ndim != a.ndim or b.ndim > _MAX_AXES:
        return None
    fitting = [
        axes for axes in itertools.permutations(range(b.ndim)) if tuple(b.shape[axis] for axis in axes) == a.shape
    ]
    if not fitting:
        return None
    flips: list[Axes] = [(), (2, 3)] if a.ndim == 4 else [()]
    for axes, flipped in itertools.product(fitting, flips):
        if relative_error(a, Layout(axes, flipped).apply(b)) <= _EQUAL:
            return Layout(axes, flipped)
    usual = _USUAL_AXES.get(framework.split(" ", maxsplit=1)[0], {}).get(b.ndim)
    axes = usual if usual in fitting else fitting[0]
    if a.ndim == 2 and (columns := _find_columns(a, b.transpose(axes))) is not None:
        return Layout(axes, columns=columns)
    return Layout(axes)


def _find_columns(a: Array, b: Array) -> tuple[int, ...] | None:
    """Return the order of B's columns in which they equal A's: flattened images with channels last. None if not."""
    order_a, order_b = (np.lexsort(one[:3]) for one in (a, b))
    if relative_error(a[:, order_a], b[:, order_b]) > _EQUAL:
        return None
    columns = np.empty_like(order_a)
    columns[order_a] = order_b
    return tuple(columns.tolist())
