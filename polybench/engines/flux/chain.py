"""What a `Chain` of Flux or Lux consists of: elements, the arrays at their paths, and the function they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.engines.flux.julia_text import Expression, number
from polybench.networks.blocks import Kind
from polybench.networks.layers import Layer
from polybench.networks.source_text import escape, literal


class Entry(NamedTuple):
    """Code of the arrays of a layer or block at a path in its chain: `start`, the path's expression, `end`.

    `layer` is None for a block.
    """

    path: str
    start: str
    end: str
    layer: Layer | None = None

    def below(self, path: str) -> Entry:
        """Return the entry of the same layer, from a chain that has this one's at `path`."""
        return self._replace(path=f"{path}{self.path}")


class Element(NamedTuple):
    """An element of a chain, and its arrays."""

    code: Expression
    entries: Sequence[Entry] = ()


class Scope(NamedTuple):
    """The function in which a layer is: that of a block's kind, or of the network."""

    kind: Kind | None = None

    def text(self, name: str) -> str:
        """Return the expression of a layer's name."""
        return literal(name) if self.kind is None else f'"$name{escape(name.removeprefix(self.kind.prefix))}"'

    def field(self, layer: Layer, name: str) -> str:
        """Return a layer's number, or the parameter that stands for it."""
        fields = self.kind.fields if self.kind else {}
        found = fields.get((getattr(layer, "name", ""), name))
        if found is not None:
            return found
        return julia_value(getattr(layer, name))


def julia_value(value: bool | float) -> str:
    """Return a field of a layer in Julia."""
    return number(value) if isinstance(value, float) else str(value).lower()
