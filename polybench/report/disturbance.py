"""What the kernel counted during blocks -> a row's disturbance, and what is worth saying of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from polybench.core import units
from polybench.core.document.resources import BlockReading, Disturbance
from polybench.core.document.result import Result
from polybench.core.spec import UNTIMED_STEPS

NOTABLE_SHARE = 0.03
"""Of a step, in page faults: less than this is no reason to change anything."""

TOLERATED_SHARE = 0.25
"""Of a cell's blocks, that may be disturbed before its ratios are no verdict. They are left out, but where
so many are, the others were hardly quieter; with one busy process beside two threads torch's steps
became up to 20 times as long."""


def add_disturbance(result: Result, readings: Sequence[Sequence[BlockReading]], heap: str) -> None:
    """Fill in what was counted of a measured cell.

    Args:
        result: with its samples.
        readings: of each of its blocks, as [process][round].
        heap: the study's policy, for the advice.
    """
    samples = result.samples
    blocks = [block for process in readings for block in process]
    if samples is None or not blocks:
        return
    timed = sum(len(one_round) for process in samples.step_seconds for one_round in process)
    steps = timed * samples.steps_per_sample + UNTIMED_STEPS * len(blocks)
    result.disturbance = Disturbance(
        run_delay_seconds_per_step=_mean((block.run_delay_seconds for block in blocks), steps),
        minor_faults_per_step=_mean((block.minor_faults for block in blocks), steps),
        major_faults_per_step=_mean((block.major_faults for block in blocks), steps),
        voluntary_switches_per_step=_mean((block.voluntary_switches for block in blocks), steps),
        involuntary_switches_per_step=_mean((block.involuntary_switches for block in blocks), steps),
        blocks_repeated=sum(block.repeats > 0 for block in blocks),
        blocks_disturbed=sum(block.disturbed for block in blocks),
        blocks=[list(process) for process in readings[: len(samples.step_seconds)]],
    )
    share = fault_share(result.disturbance) or 0.0
    if share > NOTABLE_SHARE and result.step_seconds is not None:
        result.warnings.append(_page_faults(result, share * result.step_seconds.median, share, heap))


def fault_share(disturbance: Disturbance) -> float | None:
    """Which share of a step its page faults cost at most; None where none were counted."""
    blocks = [block for process in disturbance.blocks for block in process]
    seconds = sum(block.wall_seconds for block in blocks)
    return sum(block.fault_seconds for block in blocks) / seconds if seconds else None


def undisturbed(
    samples: Sequence[Sequence[Sequence[float]]], readings: Sequence[Sequence[BlockReading]]
) -> list[list[list[float]]]:
    """A cell's samples as [process][round][sample], where rounds in which it was disturbed are empty.

    A process in which that would leave half of the rounds or fewer keeps all of them.
    """
    return [
        _quiet_rounds(process, blocks) for process, blocks in zip_longest(samples, readings, fillvalue=())
    ]


def quiet_steps(result: Result) -> list[list[list[float]]]:
    """The samples from which a result's typical step and its ratios come, as [process][round][sample]."""
    return undisturbed(result.steps, result.disturbance.blocks)


def _quiet_rounds(process: Sequence[Sequence[float]], blocks: Sequence[BlockReading]) -> list[list[float]]:
    quiet = [not block.disturbed for block in blocks]
    enough = len(quiet) == len(process) and 2 * sum(quiet) > len(quiet)
    return [list(one_round) if not enough or quiet[i] else [] for i, one_round in enumerate(process)]


def no_verdict(*results: Result) -> str | None:
    """Why a ratio of these cells proves nothing, whatever its interval; None where it may be a verdict."""
    for result in results:
        disturbance = result.disturbance
        blocks = sum(map(len, disturbance.blocks))
        if (disturbance.blocks_disturbed or 0) > TOLERATED_SHARE * blocks:
            return f"{disturbance.blocks_disturbed} of {blocks} blocks of {result.cell} were disturbed"
    return None


def _mean(counts: Iterable[float | None], steps: int) -> float | None:
    """Of a step; None where the kernel did not count in every block."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None) / steps


def _page_faults(result: Result, seconds: float, share: float, heap: str) -> str:
    count = units.count(round(result.disturbance.minor_faults_per_step or 0))
    advice = (
        "what is freed goes back to the kernel between steps; --heap keep has it stay"
        if heap == "system" or "systemheap" in (result.variant or "")
        else "the engine or its allocator gives memory back by itself"
    )
    cost = f"up to {units.seconds(seconds)} of it ({units.percent(share)})"
    return f"page faults: {count} a step, {cost}; {advice}"
