"""Accounts of differences in words: each sentence with its number, and the figure that this comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from polybench.core import units
from polybench.core.document.explanation import Account, Entry, Pair, Sentence
from polybench.core.document.result import Result
from polybench.planning.follow_ups import has_layers
from polybench.report.accounts import APART, BETWEEN, COLLECTOR, FIXED, WAITING, waiting_seconds
from polybench.report.advice import Gain
from polybench.report.disturbance import fault_share

_NOTABLE = 0.05
"""Of a difference: parts below this have no sentence."""
_NEGLIGIBLE = 0.01
_PARTS = 3
"""Sentences about parts that make the difference; about those that lessen it there is one."""


def sentences(pair: Pair, base: Result, other: Result) -> Iterator[Sentence]:
    """All that is known of a pair: whether it is certain, how much, where in the step, at the start."""
    if pair.uncertain is not None:
        yield Sentence(
            text=f"The difference of {pair.cell} and {pair.against} is not certain: {pair.uncertain}.",
            figure="speedup",
            seconds=pair.seconds,
        )
    yield _opening(pair)
    layers = pair.account("layers")
    if layers is not None:
        yield from _layers(pair, layers)
    yield from (_without_layers(result) for result in (other, base) if not has_layers(result))
    batch_size = pair.account("batch size")
    if batch_size is not None:
        yield _batch_size(batch_size, other.workload.batch_size)
    yield from _data(base, other)
    yield from _page_faults(base, other)
    start = pair.account("start")
    if start is not None:
        yield from _start(pair, start, base, other)


def advice(gain: Gain) -> Sentence:
    """What somebody could do, and what that was measured to gain."""
    cell, images = gain.result.cell, gain.result.workload.batch_size
    ways = {
        "variant": f"as {gain.to}",
        "threads": f"with {gain.to} threads",
        "heap": f"with --heap {gain.to}",
        "batch_size": f"with batches of {gain.to}",
    }
    of = f" for {images} images" if gain.what == "batch_size" else " a step"
    apart = "" if gain.what == "variant" else ", measured apart from this study"
    return Sentence(
        text=f"{cell} {ways[gain.what]}: {units.seconds(gain.seconds)}{of} less,"
        f" {units.seconds(gain.takes)} instead of {units.seconds(gain.seconds + gain.takes)}{apart}.",
        figure=f"step_time of study {gain.study}",
        seconds=gain.seconds,
    )


def _opening(pair: Pair) -> Sentence:
    speedup = units.with_interval(pair.speedup, pair.speedup95)
    return Sentence(
        text=f"{pair.cell} takes {_amount(pair.seconds, pair.interval95)} a step {_longer(pair.seconds)} than"
        f" {pair.against}: {units.seconds(pair.ours)} against {units.seconds(pair.theirs)},"
        f" {speedup} times as fast.",
        figure="step_time, speedup",
        seconds=pair.seconds,
    )


def _layers(pair: Pair, account: Account) -> Iterator[Sentence]:
    source = f"layers {account.sources[0]}"
    large = [entry for entry in account.entries if abs(entry.seconds) >= _NOTABLE * abs(pair.seconds)]
    same = [entry for entry in large if _same_way(entry, pair)]
    for number, entry in enumerate(same[:_PARTS]):
        lead = "Then" if number else "Most of it is"
        if not number and abs(entry.seconds) <= abs(pair.seconds) / 2:
            lead = "The largest part of it is"
        yield _part(lead, entry, source)
    opposite = [entry for entry in large if not _same_way(entry, pair)][-1:]
    yield from (_part("The other way round is", entry, source) for entry in opposite)
    told = [*same[:_PARTS], *opposite]
    yield from (_collector(pair, one) for one in _collecting(account) if one not in told)
    yield from _by_kind(pair, account, source)
    yield _balance(pair, account, source)


def _part(lead: str, entry: Entry, source: str) -> Sentence:
    both = f"{units.seconds(entry.ours or 0.0)} against {units.seconds(entry.theirs or 0.0)}"
    longer = _amount(entry.seconds, entry.interval95)
    return Sentence(
        text=f"{lead} {entry.name}: {longer} {_longer(entry.seconds)}, {both}.",
        figure="gc_time" if entry.kind == COLLECTOR else f"{source}: {entry.name}",
        seconds=entry.seconds,
    )


def _by_kind(pair: Pair, account: Account, source: str) -> Iterator[Sentence]:
    """Sums over all layers, where there is more than one to sum up."""
    kinds: dict[str, float] = {}
    for entry in account.entries:
        kinds[entry.kind] = kinds.get(entry.kind, 0.0) + entry.seconds
    direction = math.copysign(1.0, pair.seconds)
    sums = sorted(kinds.items(), key=lambda one: -direction * one[1])
    told = [
        f"{kind} {units.signed_seconds(seconds)}"
        for kind, seconds in sums
        if abs(seconds) >= _NEGLIGIBLE * abs(pair.seconds)
    ]
    if len(told) > 1:
        yield Sentence(text=f"Summed up by kind: {', '.join(told)}.", figure=source)


def _collecting(account: Account) -> list[Entry]:
    return [entry for entry in account.entries if entry.kind == COLLECTOR]


def _collector(pair: Pair, entry: Entry) -> Sentence:
    takes = [
        f"{units.seconds(seconds)} of {cell}'s step"
        for cell, seconds in ((pair.cell, entry.ours), (pair.against, entry.theirs))
        if seconds is not None
    ]
    return Sentence(
        text=f"The garbage collector takes {' and '.join(takes)}.",
        figure="gc_time",
        seconds=entry.seconds,
    )


def _balance(pair: Pair, account: Account, source: str) -> Sentence:
    rest = {entry.name: entry.seconds for entry in account.residue}
    between, apart = (units.signed_seconds(rest[name]) for name in (BETWEEN, APART))
    others = [entry for entry in (*account.entries, *account.residue) if entry.name in (APART, WAITING)]
    ours, theirs = (
        units.seconds(step - sum(getattr(entry, side) or 0.0 for entry in others))
        for step, side in ((pair.ours, "ours"), (pair.theirs, "theirs"))
    )
    return Sentence(
        text=f"All parts together make up {account.explained or 0.0:.0%} of the difference; {between} is"
        f" between them, and {apart} is by how much this study and the steps beside the layers are apart:"
        f" those took {ours} and {theirs}.",
        figure=f"{source}: residue_seconds",
        seconds=sum(rest.values()),
    )


def _without_layers(result: Result) -> Sentence:
    in_bf16 = result.workload.precision == "bf16"
    why = "they are timed in fp32 and tf32" if in_bf16 else "its step is timed as a whole only"
    return Sentence(text=f"{result.cell} has no times of its layers: {why}.", figure="layers")


def _batch_size(account: Account, images: int) -> Sentence:
    fixed = next(entry for entry in account.entries if entry.name == FIXED)
    by_images = next(entry for entry in account.entries if entry.name != FIXED)
    off = units.signed_seconds(sum(entry.seconds for entry in account.residue))

    def amount(entry: Entry, why: str) -> str:
        both = f"{units.seconds(entry.ours or 0.0)} against {units.seconds(entry.theirs or 0.0)}"
        return f"{units.signed_seconds(entry.seconds)} {why} ({both})"

    return Sentence(
        text=f"By batch size, {amount(fixed, 'is there whatever the size')} and"
        f" {amount(by_images, 'comes with ' + units.plural(images, 'image'))}; {off} is off that line.",
        figure=f"overhead, a line through {len(account.sources)} studies from {account.sources[0]} on",
        seconds=fixed.seconds,
    )


def _data(base: Result, other: Result) -> Iterator[Sentence]:
    ours, theirs = waiting_seconds(other), waiting_seconds(base)
    if ours is not None and theirs is not None:
        yield Sentence(
            text=f"{other.cell} waits {units.seconds(ours)} a step for data, {base.cell}"
            f" {units.seconds(theirs)}: {units.signed_seconds(ours - theirs)} of the difference.",
            figure="waiting_time",
            seconds=ours - theirs,
        )


def _page_faults(base: Result, other: Result) -> Iterator[Sentence]:
    """Within the parts: a layer that touches fresh memory has the faults in its own time."""
    costs = []
    for result in (other, base):
        share = fault_share(result.disturbance)
        if share is None:
            return
        costs.append(share * result.typical_seconds)
    ours, theirs = costs
    yield Sentence(
        text=f"Page faults cost at most {units.seconds(ours)} of {other.cell}'s step and"
        f" {units.seconds(theirs)} of {base.cell}'s; they are inside of the layers' times.",
        figure="page_faults",
        seconds=ours - theirs,
    )


def _start(pair: Pair, account: Account, base: Result, other: Result) -> Iterator[Sentence]:
    assert other.startup is not None
    assert base.startup is not None
    parts = ", ".join(f"{entry.name} {units.signed_seconds(entry.seconds)}" for entry in account.entries)
    late = "later" if account.seconds >= 0 else "earlier"
    yield Sentence(
        text=f"{pair.cell} starts {units.seconds(abs(account.seconds))} {late}:"
        f" {units.seconds(other.startup.total_seconds)} against"
        f" {units.seconds(base.startup.total_seconds)} to the end of its first step ({parts}).",
        figure="cold_start",
        seconds=account.seconds,
    )
    late_one, early_one = (other, base) if account.seconds >= 0 else (base, other)
    repaid = [one for one in late_one.break_even if one.against == early_one.cell]
    if repaid:
        steps = repaid[0].steps
        repaid_after = "never repaid" if steps is None else f"repaid after {units.count(steps)} steps"
        yield Sentence(text=f"The later start of {late_one.cell} is {repaid_after}.", figure="break_even")


def _same_way(entry: Entry, pair: Pair) -> bool:
    return math.copysign(1.0, entry.seconds) == math.copysign(1.0, pair.seconds)


def _longer(seconds: float) -> str:
    return "longer" if seconds >= 0 else "less"


def _amount(seconds: float, interval: tuple[float, float] | None) -> str:
    """How much, whichever way."""
    if interval is None:
        return units.seconds(abs(seconds))
    low, high = interval if seconds >= 0 else (-interval[1], -interval[0])
    return f"{units.seconds(abs(seconds))} ({units.seconds(low)} to {units.seconds(high)})"
