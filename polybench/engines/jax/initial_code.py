"""Writes initial weights in JAX: functions of the shapes of a network's tensors, and one that draws them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from polybench.networks import layers as spec
from polybench.networks.blocks import Block, Part, Stage, blocks_of, is_size, ordered_parameters
from polybench.networks.source_text import escape_in_braces, literal

_DRAW = '''def initial_weights():
    """Draw kernels and matrices; weights of norms begin with 1, and all else with 0."""
    draw = jax.nn.initializers.INITIALIZATION_uniform(in_axis=1, out_axis=0)
    key, tensors = jax.random.key(SEED), {}
    for name, shape in shapes().items():
        key, own = jax.random.split(key)
        if len(shape) > 1:
            tensors[name] = draw(own, shape, DTYPE)
        else:
            start = name.endswith((".weight", ".running_variance"))
            tensors[name] = jnp.full(shape, start, DTYPE)
    return tensors'''


class InitialCode:
    """The functions of a network of these parts, which are these layers; `functions` are those of kinds of blocks."""

    def __init__(self, parts: Sequence[Part], layers: Sequence[spec.Layer], functions: Mapping[str, str]) -> None:
        self._parts, self._functions = parts, functions
        self._shapes = _shapes(layers)
        self._blocks: dict[str, list[Block]] = {}
        for block in (block for part in parts for block in blocks_of(part)):
            self._blocks.setdefault(block.kind.name, []).append(block)
        self._tables = {name: self._table(blocks) for name, blocks in self._blocks.items()}

    def text(self, initialization: str) -> Iterator[str]:
        """Yield the functions; the last one is `initial_weights`. `initialization` is the model's."""
        for name, table in self._tables.items():
            if table:
                start = f"def {self._functions[name]}_shapes({', '.join(['name', *self._parameters(name)])}):"
                items = [f'        f"{{name}}{escape_in_braces(tensor)}": {shape},' for tensor, shape in table.items()]
                yield "\n".join([start, "    return {", *items, "    }"])
        yield "\n".join(["def shapes():", '    """Return the shape of each tensor."""', *self._statements()])
        yield _DRAW.replace("INITIALIZATION", initialization)

    def _table(self, blocks: Sequence[Block]) -> dict[str, str]:
        """Return the shape of each tensor of these blocks of a kind, by the end of its name; empty if it has no text.

        The size of an axis is a number, or the parameter that has it in all blocks, or a multiple of it.
        """
        prefix, table = blocks[0].prefix, {}
        for tensor in (name.removeprefix(prefix) for name in _shapes(blocks[0].kind.layers)):
            axes = zip(*(self._shapes[f"{block.prefix}{tensor}"] for block in blocks), strict=True)
            sizes = [_size(values, blocks) for values in axes]
            if "" in sizes:
                return {}
            table[tensor] = f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        return table

    def _parameters(self, kind: str) -> list[str]:
        """Return the parameters in the shapes of a kind of blocks."""
        text = " ".join(self._tables[kind].values())
        fields = self._blocks[kind][0].kind.fields
        return [name for name in ordered_parameters(fields.values()) if re.search(rf"\b{name}\b", text)]

    def _statements(self) -> Iterator[str]:
        """Yield the lines of `shapes` for the network."""
        lines = [line for part in self._parts for line in self._part(part)]
        if not lines:
            yield "    return {}"
            return
        runs = [(is_item, list(run)) for is_item, run in groupby(lines, lambda line: line.endswith("),"))]
        if len(runs) == 1 and runs[0][0]:
            yield from ["    return {", *(f"    {line}" for line in lines), "    }"]
            return
        if not runs[0][0]:
            yield "    found = {}"
        for number, (is_item, run) in enumerate(runs):
            start = f"    found {'|=' if number else '='} {{"
            yield from [start, *(f"    {line}" for line in run), "    }"] if is_item else run
        yield "    return found"

    def _part(self, part: Part) -> Iterator[str]:
        """Yield the items of a layer, or the statements that add those of blocks, equal ones in a loop."""
        if not isinstance(part, Block | Stage):
            yield from self._items(_shapes([part]))
            return
        blocks = blocks_of(part)
        if not self._tables[blocks[0].kind.name]:
            prefixes = tuple(f"{block.prefix}." for block in blocks)
            yield from self._items(name for name in self._shapes if name.startswith(prefixes))
            return
        number = part.first if isinstance(part, Stage) else 0
        for arguments, equal in groupby(blocks, self._arguments):
            alike = list(equal)
            function, *sizes = arguments
            if len(alike) == 1:
                yield f"    found |= {function}({', '.join([literal(alike[0].prefix), *sizes])})"
            else:
                series = escape_in_braces(alike[0].prefix.removesuffix(str(number)))
                yield f"    for number in range({number}, {number + len(alike)}):"
                name = f'f"{series}{{number}}"'
                yield f"        found |= {function}({', '.join([name, *sizes])})"
            number += len(alike)

    def _items(self, names: Iterable[str]) -> Iterator[str]:
        yield from (f"    {literal(name)}: {self._shapes[name]}," for name in names)

    def _arguments(self, block: Block) -> tuple[str, ...]:
        """Return the function of a block's shapes, and its arguments after the name."""
        kind = block.kind.name
        sizes = [repr(block.arguments[name]) for name in self._parameters(kind)]
        return (f"{self._functions[kind]}_shapes", *sizes)


def _shapes(layers: Sequence[spec.Layer]) -> dict[str, spec.Shape]:
    """Return the shapes of all tensors by name, layer by layer."""
    return {
        name: shape
        for layer in spec.walk(layers)
        if isinstance(layer, spec.Named)
        for name, shape in (spec.weight_shapes([layer]) | spec.state_shapes([layer])).items()
    }


def _size(values: Sequence[int], blocks: Sequence[Block]) -> str:
    """Return the expression of the size of an axis, which has these values in the blocks; "" if there is none."""
    if len(set(values)) == 1:
        return str(values[0])
    factors = {}
    for name in filter(is_size, blocks[0].arguments):
        sizes = [block.arguments[name] for block in blocks]
        factor = values[0] // sizes[0]
        if list(values) == [factor * size for size in sizes]:
            factors[name] = factor
    name = min(factors, key=factors.__getitem__, default="")
    return name if factors.get(name, 1) == 1 else f"{factors[name]} * {name}"
