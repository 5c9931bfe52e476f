"""What was timed of a machine's limits -> the fastest of each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from polybench.core import units
from polybench.core.document.circumstances import Host
from polybench.core.document.limit import STEADY, Kind, LimitDocument, LimitEngine, MeasuredRoof
from polybench.core.document.result import Result
from polybench.core.document.row import fields_of
from polybench.core.document.study import StudyDocument
from polybench.core.model import Model
from polybench.core.pieces import Piece
from polybench.core.spec import Cell
from polybench.core.statistics import median_interval
from polybench.wire.layer_messages import PartTimed
from polybench.wire.limit_messages import NumpyTimed, TimeNumpy

NUMPY = "numpy"


class Kernel(NamedTuple):
    """A product or a convolution whose parts engines time alone, for a batch; `shape` says it in words."""

    kind: Kind
    shape: str
    piece: Piece
    batch_size: int


class Timing(NamedTuple):
    """Seconds of one kernel in one engine, one a round; `work` is in FLOP or bytes."""

    kind: Kind
    engine: str
    shape: str
    work: int
    seconds: Sequence[float]

    @property
    def rates(self) -> list[float]:
        """Work a second, round by round."""
        return [self.work / seconds for seconds in self.seconds]


def timings_of_engine(
    engine: str, kernels: Sequence[Kernel], rounds: Sequence[Sequence[PartTimed]]
) -> Iterator[Timing]:
    """Forward and both gradients of each kernel; every round has the same parts in the same order."""
    for number, timed in enumerate(rounds[0] if rounds else ()):
        assert timed.piece is not None
        kernel = kernels[timed.piece]
        flop = kernel.piece.flop(timed.part, kernel.batch_size)
        seconds = [parts[number].seconds for parts in rounds]
        if flop is not None and min(seconds) > 0:
            yield Timing(kernel.kind, engine, f"{kernel.shape}, {timed.part}", flop, seconds)


def timings_of_numpy(asked: TimeNumpy | None, rounds: Sequence[NumpyTimed]) -> Iterator[Timing]:
    """Its products, and the triad; nothing where it was not asked, or never answered."""
    if asked is None or not rounds:
        return
    for size, *seconds in zip(asked.sizes, *(one.products for one in rounds), strict=True):
        yield Timing("gemm", NUMPY, square(size), 2 * size**3, seconds)
    triads = [one.triad for one in rounds if one.triad is not None]
    if asked.triad_bytes is not None and triads:
        shape = f"3 arrays of {units.nbytes(asked.triad_bytes)}"
        yield Timing("triad", NUMPY, shape, 3 * asked.triad_bytes, triads)


def square(size: int) -> str:
    """What a product of square matrices is called."""
    return f"{size}x{size}x{size}"


def limit_document(
    study: StudyDocument,
    timings: Iterable[Timing],
    numpy: str | None = None,
    network: Model | None = None,
) -> LimitDocument:
    """The fastest of each kind, by its median over rounds.

    Args:
        study: whose cells, all of one device and one precision, were timed.
        timings: of cells that did not fail, and of NumPy.
        numpy: its version.
        network: of the study, where its model is no name.
    """
    settings = study.settings
    fastest: dict[Kind, Timing] = {}
    for timing in timings:
        best = fastest.get(timing.kind, timing)
        fastest[timing.kind] = max(best, timing, key=lambda one: median(one.rates))
    roofs = [_roof(timing, study) for timing in fastest.values()]
    return LimitDocument(
        created=study.created,
        polybench=study.polybench,
        argv=study.argv,
        model=settings.model,
        network=network,
        batch_size=settings.batch_size,
        threads=settings.threads,
        heap=settings.heap,
        numpy=numpy,
        host=study.host,
        roofs=roofs,
        engines=[_engine(result) for result in study.results],
        warnings=[*study.warnings, *_unsteady(roofs)],
    )


def joined(documents: Sequence[LimitDocument]) -> LimitDocument:
    """Those of several devices and precisions, at least one, as one."""
    return msgspec.structs.replace(
        documents[-1],
        roofs=[roof for document in documents for roof in document.roofs],
        engines=[engine for document in documents for engine in document.engines],
        warnings=list(dict.fromkeys(text for document in documents for text in document.warnings)),
    )


def not_measured(last: LimitDocument, cells: Iterable[Cell]) -> LimitDocument:
    """Of these cells nothing was measured, since whoever asked interrupted it after `last` was finished."""
    engines = [
        LimitEngine(
            cell=cell.name,
            engine=cell.engine,
            variant=cell.variant,
            device=cell.device,
            status="interrupted",
            reason="interrupted before anything was measured",
            remedy="run it again; what was measured is kept",
        )
        for cell in cells
    ]
    warnings = ["interrupted: only what was finished is shown"]
    return msgspec.structs.replace(last, roofs=[], engines=engines, warnings=warnings)


def differences(
    then: Mapping[str, Mapping[str, str | None]], now: Mapping[str, Mapping[str, str | None]]
) -> list[str]:
    """`tf/cpu: keras 3.15 was 3.14`, by cell: each version that is not what it was; without one, none."""
    return [
        f"{cell}: {name} {now.get(cell, {}).get(name) or 'none'}, was {versions.get(name) or 'none'}"
        for cell, versions in then.items()
        for name in dict.fromkeys((*versions, *now.get(cell, {})))
        if versions.get(name) != now.get(cell, {}).get(name)
    ]


def _roof(timing: Timing, study: StudyDocument) -> MeasuredRoof:
    rates, triad = timing.rates, timing.kind == "triad"
    device, threads = study.results[0].device, study.settings.threads
    return MeasuredRoof(
        device=device,
        precision=None if triad else study.settings.precision,
        threads=threads,
        kind=timing.kind,
        value=median(rates),
        unit="B/s" if triad else "FLOP/s",
        engine=timing.engine,
        shape=timing.shape,
        interval95=median_interval(rates),
        change=rates[-1] / rates[0] - 1 if len(rates) > 1 else None,
        others=_others(study.host, threads) if device == "cpu" else 0.0,
        measured=study.created,
    )


def _others(host: Host, threads: int) -> float:
    """What others took of the cores that these threads needed: what they took beyond those that were free."""
    taken = [(noise.other_cpu_percent + noise.steal_percent) / 100 for noise in host.noise]
    free = max(0, host.cores - threads)
    return max(0.0, median(taken) - free) / threads if taken else 0.0


def _engine(result: Result) -> LimitEngine:
    return LimitEngine(**fields_of(result), versions=versions_of(result))


def versions_of(result: Result) -> dict[str, str]:
    """Those of the framework and its libraries: what else is noted beside them is no text."""
    return {name: value for name, value in result.versions.items() if isinstance(value, str)}


def _unsteady(roofs: Iterable[MeasuredRoof]) -> Iterator[str]:
    for roof in roofs:
        if roof.kind == "gemm" and not roof.steady:
            where = f"{roof.device}, {roof.precision}"
            yield (
                f"{where}: {_why(roof)}: no percentages are taken of this roof, and it is not kept; measure"
                " again on a quiet machine"
            )


def _why(roof: MeasuredRoof) -> str:
    if roof.change is None:
        return "there was one round only"
    if roof.others > STEADY:
        return f"others took {roof.others:.0%} of the cores (at most {STEADY:.0%})"
    return (
        f"the product of the last round is {roof.change:+.0%} from that of the first (at most {STEADY:.0%})"
    )
