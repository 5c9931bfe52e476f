"""Keras's variables, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from polybench.core.layers import Shape
from polybench.engines.base import Array


class Placed(NamedTuple):
    """A Keras variable, and the canonical (channels, height, width) of what was flattened into its input."""

    variable: Any
    flattened: Shape | None


def values_of(variables: Iterable[Any]) -> list[tuple[Any, Array]]:
    """Each with a copy of its value."""
    return [(variable, variable.numpy()) for variable in variables]


def assign(values: Iterable[tuple[Any, Array]]) -> None:
    """Put values of `values_of` back."""
    for variable, value in values:
        variable.assign(value)
