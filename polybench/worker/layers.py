"""The layers of a network, each timed alone, and the tensors that they are given for it."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polybench.core.document.layers import Part
from polybench.core.job import Job
from polybench.core.pieces import Piece, pieces
from polybench.engines.base import Engine, Replayed, Weights
from polybench.engines.support.arrays import as_input
from polybench.wire.layer_messages import PartTimed
from polybench.wire.limit_messages import Alone

_BACKWARDS: tuple[Part, ...] = ("activation", "weight gradient", "data gradient")


def write_layers(engine: Engine, job: Job, folder: Path) -> None:
    """Write what each piece of the network computes in the first batch.

    Args:
        engine: the reference, built and loaded.
        job: that it was built for.
        folder: gets `0.npz`, `1.npz`, ..., canonical, float32, tokens int32: the piece's input `x` and the
            gradient `dy` of its output, which engines are given; `z` and `dz`, output and gradient in front
            of the ReLU; `dx`, `gradient.weight` and the like.
    """
    tensors = iter(engine.layer_tensors(0))
    for index, piece in enumerate(pieces(job.model)):
        seen = [next(tensors) for _ in piece.layers]
        layer, last = seen[0], seen[-1]
        named = {"x": layer.x, "z": layer.y, "dy": last.dy, "dz": layer.dy, "dx": layer.dx}
        named |= {f"gradient.{part}": value for part, value in layer.gradients.items()}
        arrays: dict[str, Any] = {name: as_input(value, "float32") for name, value in named.items()}
        np.savez(folder / f"{index}.npz", **arrays)


class _Timed(NamedTuple):
    """A part of a piece, by its number, or of the step; `less` is a part of the piece that it contains."""

    piece: int | None
    part: Part
    replayed: Replayed
    less: Part | None = None


Pieces = list[tuple[Piece, Mapping[Part, Replayed]]]


class Layers:
    """An engine's layers, built once; `time` may be called again and again.

    Parts are timed in the order of a step, one after the other, so that each finds the caches as they are
    then: never the same part twice in a row.

    Args:
        engine: built and loaded.
        job: that it was built for.
        found: each piece and its parts.
        of_step: those that belong to none.
    """

    def __init__(self, engine: Engine, job: Job, found: Pieces, of_step: Mapping[Part, Replayed]) -> None:
        self._engine = engine
        # A GPU is synchronized at both ends of what is timed, which takes longer than most parts do.
        self._in_a_row = job.device != "cpu"
        self._parts = list(_in_order(found, of_step))
        self._sweep(1)  # compiles, and makes what is made once
        engine.collect()

    def time(self, repeats: int) -> list[PartTimed]:
        """Each part that often.

        Returns:
            Seconds of each: the median over repeats, on a GPU the mean, of what is left without the garbage
            collector's pauses, less the median of asking for nothing. Those pauses are a mean. A gradient
            that contains another one is less that, so that both are what they take together.
        """
        gc.collect()
        sweeps = [self._sweep(repeats)] if self._in_a_row else [self._sweep(1) for _ in range(repeats)]
        # What the parts leave behind must not be collected in whole steps, which are measured next.
        self._engine.collect()
        empty = {run: statistics.median(sweep.empty[run] for sweep in sweeps) for run in sweeps[0].empty}
        timed = [
            PartTimed(
                one.piece,
                one.part,
                statistics.median(sweep.seconds[number] for sweep in sweeps)
                - (empty[one.replayed.empty] if one.replayed.empty else 0.0),
                _mean([sweep.collecting[number] for sweep in sweeps]),
            )
            for number, one in enumerate(self._parts)
        ]
        whole = {(one.piece, one.part): one for one in timed}
        return [
            _beyond(whole[one.piece, one.part], whole[one.piece, one.less] if one.less else None)
            for one in self._parts
        ]

    def _sweep(self, n: int) -> _Sweep:
        """Every part n times in a row; nothing is asked for right after the first part that is less it.

        At the beginning of a sweep that would take longer, after whatever ran before.
        """
        empty: dict[Callable[[int], float], float] = {}
        measured = []
        for part in self._parts:
            run, nothing = part.replayed
            measured.append(self._measure(run, n))
            if nothing and nothing not in empty:
                empty[nothing] = nothing(n) / n
        return _Sweep(empty, *map(list, zip(*measured, strict=True)))

    def _measure(self, run: Callable[[int], float], n: int) -> tuple[float, float | None]:
        before = self._engine.collected()
        seconds = run(n)
        after = self._engine.collected()
        if before is None or after is None:
            return seconds / n, None
        collecting = after.seconds - before.seconds
        return (seconds - collecting) / n, collecting / n


class _Sweep(NamedTuple):
    """Seconds of asking for nothing, of each part, and of the garbage collector in each part."""

    empty: dict[Callable[[int], float], float]
    seconds: list[float]
    collecting: list[float | None]


def of_network(engine: Engine, job: Job, weights: Weights, folder: Path) -> Layers:
    """Those of the job's network, and of its step.

    Args:
        engine: built and loaded.
        job: that it was built for.
        weights: all of the network, canonical.
        folder: of `write_layers`; where a batch has more images than those, they are repeated.
    """
    found: Pieces = []
    batch_size = job.workload.batch_size
    for index, piece in enumerate(pieces(job.model)):
        with np.load(folder / f"{index}.npz") as file:
            # `resize` repeats the images until there are enough of them.
            x, dy = (np.resize(file[name], (batch_size, *file[name].shape[1:])) for name in ("x", "dy"))
        own = {name: weights[name] for name in piece.tensor_shapes()}
        found.append((piece, engine.replay(piece, own, x, dy)))
    return Layers(engine, job, found, engine.replay_step())


def alone(engine: Engine, job: Job, given: Iterable[Alone]) -> Layers:
    """Pieces that need not belong to the job's network, with normally distributed numbers for all tensors."""
    random = np.random.default_rng(job.seed)
    found: Pieces = []
    for one in given:
        shapes = one.piece.input_shape, one.piece.output_shape()
        x, dy = (random.standard_normal((one.batch_size, *shape), np.float32) for shape in shapes)
        weights = {
            name: random.standard_normal(shape, np.float32)
            for name, shape in one.piece.tensor_shapes().items()
        }
        found.append((one.piece, engine.replay(one.piece, weights, x, dy)))
    return Layers(engine, job, found, {})


def _in_order(found: Pieces, of_step: Mapping[Part, Replayed]) -> Iterator[_Timed]:
    """Forwards, the loss, backwards, the update, the call."""
    for index, (_, parts) in enumerate(found):
        yield _Timed(index, "forward", parts["forward"])
    if "loss" in of_step:
        yield _Timed(None, "loss", of_step["loss"])
    for index, (piece, parts) in reversed(list(enumerate(found))):
        less: dict[Part, Part] = {
            one.part: "data gradient" for one in piece.gradients() if one.contains_data_gradient
        }
        yield from (_Timed(index, part, parts[part], less.get(part)) for part in _BACKWARDS if part in parts)
    yield from (_Timed(None, part, one) for part, one in of_step.items() if part != "loss")


def _beyond(timed: PartTimed, less: PartTimed | None) -> PartTimed:
    """What a part takes beyond another one that it contains."""
    if less is None:
        return timed
    both = timed.gc_seconds, less.gc_seconds
    collecting = None if both[0] is None or both[1] is None else both[0] - both[1]
    return PartTimed(timed.piece, timed.part, timed.seconds - less.seconds, collecting)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
