"""Repeated blocks of a network: what its author wrote once, as a class or a function, and called in a loop.

A block is a run of layers whose names have the same prefix, with a number at its end: `stage1.block2.conv1`. Blocks of
the same structure have one kind; the numbers in which they differ, such as channels, are parameters of the kind.
Consecutive blocks with consecutive numbers are a stage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

import msgspec

from polybench.networks.layers import Layer, Named, Residual, Shape, walk

_NUMBERED = re.compile(r"(?:(?P<parent>.+)\.)?(?P<base>[^.]*?)(?P<number>0|[1-9]\d*)", re.ASCII)
_SIZES = ("inputs", "outputs", "channels", "features", "units", "groups")
_PARAMETERS = (*_SIZES, "stride", "heads", "rate")
"""Fields in which blocks of one kind may differ."""


class Kind(NamedTuple):
    """Structure of blocks; `layers` are those of the first one.

    `fields` has the parameter that stands for a field of a layer: ("stage1.block1.conv1", "inputs") -> "channels".
    """

    name: str
    prefix: str
    layers: tuple[Layer, ...]
    fields: Mapping[tuple[str, str], str]


class Block(NamedTuple):
    """Layers that a kind makes with these arguments, by parameter."""

    kind: Kind
    prefix: str
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The prefix, as the name of the block."""
        return self.prefix


class Stage(NamedTuple):
    """Consecutive blocks; their prefixes are `parent` (if any), `base` and a number, from `first` on."""

    parent: str
    base: str
    first: int
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """The common part of the prefixes, which other stages may have as well, and the first number."""
        return f"{self.blocks[0].prefix} and later"


Part = Layer | Block | Stage


def blocks_of(part: Part) -> tuple[Block, ...]:
    """Return the blocks of a stage, a block itself, or none of a layer."""
    return part.blocks if isinstance(part, Stage) else (part,) if isinstance(part, Block) else ()


def ordered_parameters(parameters: Iterable[str]) -> list[str]:
    """Return the parameters of a kind once each: what goes in, what comes out, the rest."""
    first = ("inputs", "channels")
    return sorted(
        dict.fromkeys(parameters),
        key=lambda name: (name not in first, not name.startswith("hidden"), name != "outputs"),
    )


def is_size(parameter: str) -> bool:
    """Return True for the parameters of a kind that are channels or features, which have no keyword."""
    return parameter in ("inputs", "channels", "outputs") or parameter.startswith("hidden")


class _Run(NamedTuple):
    """Consecutive layers with one numbered prefix, or "" for layers outside of blocks."""

    prefix: str
    layers: tuple[Layer, ...]
    shape: Shape

    @property
    def series(self) -> tuple[str, str] | None:
        """Parent and base of the prefix."""
        match = _NUMBERED.fullmatch(self.prefix)
        return (match["parent"] or "", match["base"]) if match else None


def parts(layers: Sequence[Layer], shape: Shape, taken: Collection[str] = ()) -> tuple[Part, ...]:
    """Split a network with inputs of `shape` (without the batch) into layers, blocks and stages, in their order.

    No kind has a name of `taken`.
    """
    runs = list(_runs(layers, shape))
    prefixes, series = Counter(run.prefix for run in runs), Counter(run.series for run in runs)
    structures = Counter(_structure(run) for run in runs)

    def is_block(run: _Run) -> bool:
        is_repeated = series[run.series] > 1 or structures[_structure(run)] > 1
        return bool(run.prefix) and prefixes[run.prefix] == 1 and is_repeated

    runs = [run if is_block(run) else run._replace(prefix="") for run in runs]
    blocks = _blocks([run for run in runs if run.prefix], taken)
    found: list[Layer | Block] = []
    for run in runs:
        found += [next(blocks)] if run.prefix else run.layers
    return tuple(_with_stages(found))


def _runs(layers: Sequence[Layer], shape: Shape) -> Iterator[_Run]:
    """Yield the runs in their order; activations after a block belong to it."""
    run = _Run("", (), shape)
    for layer in layers:
        prefix = _prefix(layer)
        if prefix == run.prefix or (layer.is_activation and run.prefix):
            run = run._replace(layers=(*run.layers, layer))
        else:
            yield run
            run = _Run(prefix or "", (layer,), shape)
        shape = layer.output_shape(shape)
    yield run


def _prefix(layer: Layer) -> str | None:
    """Return the longest prefix of all its names whose last part has a number; None for a layer without names."""
    named = [inner for inner in walk([layer]) if isinstance(inner, Named)]
    if not named:
        return None
    if any(getattr(inner, "tied", None) for inner in named):
        return ""
    common: list[str] = []
    for equal in zip(*(inner.name.split(".")[:-1] for inner in named), strict=False):
        if len(set(equal)) > 1:
            break
        common.append(equal[0])
    while common and not common[-1][-1:].isdigit():
        common.pop()
    return ".".join(common)


def _structure(run: _Run) -> Hashable:
    """Return what all blocks of a kind have in common."""
    return (bool(run.prefix), len(run.shape), *(_of_layer(layer, run.prefix) for layer in run.layers))


def _of_layer(layer: Layer, prefix: str) -> Hashable:
    if isinstance(layer, Residual):
        return tuple(tuple(_of_layer(one, prefix) for one in branch) for branch in (layer.body, layer.shortcut))
    fields = msgspec.structs.asdict(layer)
    if isinstance(layer, Named):
        fields = {name: value for name, value in fields.items() if name not in _PARAMETERS}
        fields["name"] = layer.name.removeprefix(prefix)
    return (type(layer), *fields.items())


def _blocks(runs: Sequence[_Run], taken: Collection[str]) -> Iterator[Block]:
    """Yield the block of each run."""
    members: dict[Hashable, list[_Run]] = {}
    for run in runs:
        members.setdefault(_structure(run), []).append(run)
    names = dict(zip(members, _names(list(members.values()), taken), strict=True))
    kinds, arguments = {}, {}
    for structure, alike in members.items():
        fields = _fields(alike)
        first = alike[0]
        kinds[structure] = Kind(names[structure], first.prefix, first.layers, fields)
        for number, run in enumerate(alike):
            arguments[run.prefix] = {name: _columns(alike)[field][number] for field, name in fields.items()}
    for run in runs:
        yield Block(kinds[_structure(run)], run.prefix, arguments[run.prefix])


def _columns(runs: Sequence[_Run]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return the values that a field of a layer of the first run has in each of them."""
    each = zip(*([one for one in walk(run.layers) if isinstance(one, Named)] for run in runs), strict=True)
    return {
        (layers[0].name, field): tuple(getattr(layer, field) for layer in layers)
        for layers in each
        for field in _PARAMETERS
        if hasattr(layers[0], field)
    }


def _fields(runs: Sequence[_Run]) -> dict[tuple[str, str], str]:
    """Return the parameter of each field in which the runs differ; fields with the same values share one."""
    features = tuple(_features(run.shape) for run in runs)
    outputs = tuple(_features(_output(run)) for run in runs)
    names: dict[tuple[Any, ...], str] = {}
    fields = {}
    for (layer, field), values in _columns(runs).items():
        if len(set(values)) == 1:
            continue
        if values not in names:
            name = field if field not in _SIZES else "hidden"
            if values == outputs:
                name = "outputs"
            if values == features:
                name = "channels" if values == outputs else "inputs"
            names[values] = name if name not in names.values() else f"{name}{len(names)}"
        fields[layer, field] = names[values]
    return fields


def _features(shape: Shape) -> int:
    """Return the channels of images, or the features of a sequence."""
    return shape[0] if len(shape) == 3 else shape[-1]


def _output(run: _Run) -> Shape:
    shape = run.shape
    for layer in run.layers:
        shape = layer.output_shape(shape)
    return shape


def _names(kinds: Sequence[Sequence[_Run]], reserved: Collection[str]) -> Iterator[str]:
    """Yield a name for each kind, from what its blocks have in common: `Block`, `ResidualBlock`, `ProjectionBlock`."""
    bases = [_camel_case(runs[0].series[1]) if runs[0].series else "" for runs in kinds]
    plain = [not any(isinstance(layer, Residual) for layer in runs[0].layers) for runs in kinds]
    taken = {*reserved}
    for number, (base, runs) in enumerate(zip(bases, kinds, strict=True)):
        rivals = [
            len(other) for one, is_plain, other in zip(bases, plain, kinds, strict=True) if one == base and is_plain
        ]
        name = base or "Block"
        if bases.count(base) > 1 and not plain[number]:
            has_shortcut = any(isinstance(layer, Residual) and layer.shortcut for layer in runs[0].layers)
            name = f"{'Projection' if has_shortcut else 'Residual'}{name}"
        elif bases.count(base) > 1 and len(runs) < max(rivals):
            name = _camel_case(runs[0].prefix)
        while name in taken or iskeyword(name):
            name = f"{name}{_camel_case(runs[0].prefix)}"
        taken.add(name)
        yield name


def _camel_case(name: str) -> str:
    joined = "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", name, flags=re.ASCII))
    return f"Block{joined}" if joined[:1].isdigit() else joined


def _with_stages(found: Sequence[Layer | Block]) -> Iterator[Part]:
    """Yield the parts, with consecutive blocks as stages."""
    blocks: list[Block] = []
    for part in [*found, None]:
        if blocks and not (isinstance(part, Block) and _follows(part, blocks[-1])):
            yield _stage(blocks) if len(blocks) > 1 else blocks[0]
            blocks = []
        if isinstance(part, Block):
            blocks.append(part)
        elif part is not None:
            yield part


def _follows(block: Block, before: Block) -> bool:
    (*series, number), (*series_before, number_before) = _split(block), _split(before)
    return series == series_before and number == number_before + 1


def _stage(blocks: Sequence[Block]) -> Stage:
    parent, base, number = _split(blocks[0])
    return Stage(parent, base, number, tuple(blocks))


def _split(block: Block) -> tuple[str, str, int]:
    match = _NUMBERED.fullmatch(block.prefix)
    assert match, block.prefix
    return match["parent"] or "", match["base"], int(match["number"])
