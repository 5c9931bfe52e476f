"""A difference of two cells, taken apart into entries that add up to it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

import msgspec

from polybench.core.document.explanation import Account, Entry, Interval
from polybench.core.document.layers import STEP, EngineLayers, LayerRow, LayersDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.statistics import mean_of_rounds, process_levels, student_interval
from polybench.report.disturbance import quiet_steps
from polybench.report.overhead import summarize

Rounds = Sequence[Sequence[float]]
"""Seconds as [process][round]."""

FIXED = "whatever the batch size"
BETWEEN, APART, OFF_THE_LINE = "between the parts", "the two measurements apart", "off the line"
COLLECTOR, WAITING = "the garbage collector", "waiting for data"


def difference(base: Result, other: Result) -> tuple[float, Interval | None]:
    """Seconds by which a typical step of `other` is longer, with an interval over pairs of processes.

    The interval is about that difference, not about the mean of the pairs', which is not quite the same.
    """
    levels = zip(process_levels(quiet_steps(other)), process_levels(quiet_steps(base)), strict=False)
    apart = [math.exp(ours) - math.exp(theirs) for ours, theirs in levels]
    seconds = other.typical_seconds - base.typical_seconds
    interval = student_interval(apart)
    return seconds, _shifted(interval, seconds - fmean(apart)) if interval else None


def by_layers(base: Result, other: Result, document: LayersDocument) -> Account | None:
    """The parts of a step that were timed alone; None where one of the two has none.

    The garbage collector is not in the times of the layers, and has an entry: of this study, whose steps were
    trained as any are. What lies between the parts is residue, and so is by how much this study's steps
    differ from those that were measured beside the layers.
    Both residues are known of each cell, so that its own parts add up to its own step, too.
    """
    ours, theirs = document.engine(other.cell), document.engine(base.cell)
    if ours is None or theirs is None or not ours.rows or not theirs.rows:
        return None
    assert ours.step_seconds is not None
    assert theirs.step_seconds is not None
    mine, yours = ({(row.layer, row.part): row for row in one.rows} for one in (ours, theirs))
    entries = [_of_rows(mine.get(key), yours.get(key)) for key in dict.fromkeys([*mine, *yours])]
    collector = _entry(COLLECTOR, other.gc.seconds_per_step, base.gc.seconds_per_step)
    waiting = _entry(WAITING, waiting_seconds(other), waiting_seconds(base))
    entries += [entry for entry in (collector, waiting) if entry is not None]
    seconds, _ = difference(base, other)
    steps = ours.step_seconds - theirs.step_seconds
    of_layers = [entry for entry in entries if entry is not waiting]
    parts = sum(entry.seconds for entry in of_layers)
    beside = seconds - steps - (waiting.seconds if waiting else 0.0)
    between = Entry(
        name=BETWEEN,
        kind="residue",
        seconds=steps - parts,
        ours=ours.step_seconds - sum(entry.ours or 0.0 for entry in of_layers),
        theirs=theirs.step_seconds - sum(entry.theirs or 0.0 for entry in of_layers),
        interval95=_shifted(_interval(_left(ours), _left(theirs)), -collector.seconds if collector else 0.0),
    )
    waited = (waiting.ours or 0.0, waiting.theirs or 0.0) if waiting else (0.0, 0.0)
    apart = Entry(
        name=APART,
        kind="residue",
        seconds=beside,
        ours=other.typical_seconds - ours.step_seconds - waited[0],
        theirs=base.typical_seconds - theirs.step_seconds - waited[1],
    )
    return _account("layers", seconds, entries, [between, apart], [document.id])


def by_batch_size(base: Result, other: Result, studies: Mapping[int, StudyDocument]) -> Account | None:
    """What every step costs, and what its images add; None where there is no line.

    Args:
        base: whose step is `theirs`.
        other: whose step is `ours`.
        studies: by their batch size, each with both cells.
    """
    both = {
        size: msgspec.structs.replace(study, results=[study.result(other.cell), study.result(base.cell)])
        for size, study in sorted(studies.items())
    }
    ours, theirs = summarize(both, []).engines
    if ours.fixed_seconds is None or theirs.fixed_seconds is None:
        return None
    images, unit = other.workload.batch_size, next(iter(studies.values())).settings.unit
    entries = [
        _entry(FIXED, ours.fixed_seconds, theirs.fixed_seconds),
        _entry(f"the {unit}s", *(images * (line.seconds_per_sample or 0.0) for line in (ours, theirs))),
    ]
    known = [entry for entry in entries if entry is not None]
    seconds, _ = difference(base, other)
    off = Entry(name=OFF_THE_LINE, kind="residue", seconds=seconds - sum(entry.seconds for entry in known))
    return _account("batch size", seconds, known, [off], [study.id for study in both.values()])


def by_start(base: Result, other: Result) -> Account | None:
    """The cold starts, part by part; None where they are not known."""
    ours, theirs = other.startup, base.startup
    if ours is None or theirs is None:
        return None
    pairs = {
        "process": (ours.process_seconds, theirs.process_seconds),
        "import": (ours.import_seconds, theirs.import_seconds),
        "build": (ours.build_seconds, theirs.build_seconds),
        "data": (ours.data_seconds, theirs.data_seconds),
        "first step": (ours.first_step_seconds, theirs.first_step_seconds),
    }
    entries = [entry for name, both in pairs.items() if (entry := _entry(name, *both)) is not None]
    return _account("start", ours.total_seconds - theirs.total_seconds, entries, [], [])


def _account(
    kind: str, seconds: float, entries: Iterable[Entry], residue: list[Entry], sources: list[str]
) -> Account:
    direction = math.copysign(1.0, seconds)
    by_share = sorted(entries, key=lambda entry: -direction * entry.seconds)
    return Account(kind=kind, seconds=seconds, entries=by_share, residue=residue, sources=sources)  # type: ignore[arg-type]


def _entry(name: str, ours: float | None, theirs: float | None) -> Entry | None:
    if ours is None and theirs is None:
        return None
    return Entry(name=name, kind=name, seconds=(ours or 0.0) - (theirs or 0.0), ours=ours, theirs=theirs)


def _of_rows(ours: LayerRow | None, theirs: LayerRow | None) -> Entry:
    row = ours or theirs
    assert row is not None
    mine, yours = (one.seconds_per_step if one else None for one in (ours, theirs))
    return Entry(
        name=row.part if row.layer == STEP else f"{row.layer}, {row.part}",
        kind=row.part,
        seconds=(mine or 0.0) - (yours or 0.0),
        interval95=_interval(ours.seconds, theirs.seconds) if ours and theirs else None,
        ours=mine,
        theirs=yours,
    )


def waiting_seconds(result: Result) -> float | None:
    """Of each step, what the thread that trains waited for data; None where nothing tells."""
    return result.pipeline.waiting_seconds_per_step if result.pipeline else None


def _left(engine: EngineLayers) -> Rounds:
    """Of each round a whole step less its parts; the garbage collector is in it."""
    assert engine.samples is not None
    parts = zip(*(row.seconds for row in engine.rows), strict=False)
    return [
        [
            median(steps) - sum(seconds)
            for steps, seconds in zip(rounds, zip(*of_process, strict=False), strict=False)
        ]
        for rounds, of_process in zip(engine.samples.step_seconds, parts, strict=False)
    ]


def _interval(ours: Rounds, theirs: Rounds) -> Interval | None:
    """Of the mean difference; a process and a round are paired with those that ran beside them."""
    differences = [
        [mine - yours for mine, yours in zip(*rounds, strict=False)]
        for rounds in zip(ours, theirs, strict=False)
    ]
    return mean_of_rounds(differences)[1] if any(differences) else None


def _shifted(interval: Interval | None, by: float) -> Interval | None:
    return interval and (interval[0] + by, interval[1] + by)
