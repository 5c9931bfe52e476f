"""Studies of one workload on several machines -> one table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from polybench.core.document.merge import Machine, MergeDocument, MergedRow
from polybench.core.document.result import Result
from polybench.core.document.row import fields_of
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.prices import device_of, prices_with
from polybench.report.changed import said
from polybench.report.comparisons import relative, relative_across_studies
from polybench.report.disturbance import no_verdict
from polybench.report.replicas import devices

_WORKLOAD = ("model", "data_sha256", "batch_size", "optimizer", "input", "augment")
"""Of settings; each machine has its own threads, and precision belongs to the cell."""

Prices = Mapping[str, float]
"""Dollars an hour by `DEVICE`, for all machines, or by `MACHINE:DEVICE`; of core.prices: `cpu-16`, too."""


class _Place(NamedTuple):
    """A cell on a machine."""

    machine: Machine
    result: Result

    @property
    def name(self) -> str:
        return f"{self.machine.name}:{self.result.cell}"


def merge(
    studies: Sequence[StudyDocument],
    prices: Prices,
    baseline: str | None = None,
    absent: Mapping[str, str] | None = None,
) -> MergeDocument:
    """Every cell of all studies, beside one of them.

    Args:
        studies: of one workload, at least two; of a fleet one is enough.
        prices: those of a study are its own where these say nothing.
        baseline: `MACHINE:CELL`, by default the baseline of the first study.
        absent: of a fleet, machines of which nothing came -> why.

    Raises:
        BadInput: there is one study only, or one twice, or of another workload; a machine or cell that
            is not there.
    """
    _check(studies, alone=absent is not None)
    machines = [_machine(name, study, prices) for name, study in zip(_names(studies), studies, strict=True)]
    _check_prices(prices, list(zip(machines, studies, strict=True)))
    places = [
        _Place(machine, result)
        for machine, study in zip(machines, studies, strict=True)
        for result in study.results
    ]
    base = _base(places, studies[0], baseline)
    return MergeDocument(
        settings=studies[0].settings,
        baseline=base and base.name,
        machines=machines,
        rows=[_row(place, base) for place in places],
        absent=dict(absent or {}),
    )


def _check(studies: Sequence[StudyDocument], *, alone: bool) -> None:
    if len(studies) < 2 and not alone:
        raise BadInput("one study is a table already: polybench show; give two or more to merge")
    first = studies[0]
    for number, other in enumerate(studies):
        if any(other.id == earlier.id for earlier in studies[:number]):
            raise BadInput(f"study {other.id} is given twice; give it once")
        for name in _WORKLOAD:
            one, two = (getattr(study.settings, name) for study in (first, other))
            if one != two:
                what = {"data_sha256": "images"}.get(name, name.replace("_", " "))
                values = [said(msgspec.to_builtins(value))[:40] for value in (one, two)]
                raise BadInput(
                    f"studies of different workloads cannot be merged: {what} is {values[0]} in {first.id},"
                    f" {values[1]} in {other.id}"
                )


def _names(studies: Sequence[StudyDocument]) -> Iterator[str]:
    """As repeats of a cell are numbered."""
    seen: Counter[str] = Counter()
    for study in studies:
        name = machine_name(study)
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"


def machine_name(study: StudyDocument) -> str:
    """What the study file called the machine, or else what it calls itself."""
    return study.machine or study.host.hostname


def _machine(name: str, study: StudyDocument, prices: Prices) -> Machine:
    threads = study.settings.threads
    here = {of.removeprefix(f"{name}:"): price for of, price in prices.items() if of.startswith(f"{name}:")}
    known = study.settings.prices | prices_with(prices, threads) | prices_with(here, threads)
    return Machine(
        name=name,
        study=study.id,
        created=study.created,
        cpu=study.host.cpu,
        cores=study.host.cores,
        gpus=study.host.gpus,
        threads=threads,
        prices={result.device: known[result.device] for result in study.results if result.device in known},
    )


def _check_prices(prices: Prices, studies: Sequence[tuple[Machine, StudyDocument]]) -> None:
    """A price that nobody pays is a mistake; one that a machine's own, or its threads', replaces is none."""
    machines = {machine.name: machine for machine, _ in studies}
    for name in prices:
        host, _, price = name.partition(":")
        if not price or host == "cuda":  # a device may have a number: cuda:1
            host, price = "", name
        else:
            pick(host, machines, "machine")
        device = device_of(price)
        ran = [
            machine
            for machine, study in studies
            if host in ("", machine.name) and any(result.device == device for result in study.results)
        ]
        if not ran:
            where = " there" if host else "; devices are cpu, cuda, cuda:1, ..."
            raise BadInput(f"--price {name}: no cell ran on {device}{where}")
        if not any(prices_with({price: prices[name]}, machine.threads) for machine in ran):
            had = ", ".join(f"{machine.name} {machine.threads}" for machine in ran)
            raise BadInput(f"--price {name}: no machine had so many threads; they had: {had}")


def _base(places: Sequence[_Place], first: StudyDocument, wanted: str | None) -> _Place | None:
    ranked = {place.name: place for place in places if place.result.ranked}
    if wanted is not None:
        return pick(wanted, ranked, "row")
    own = f"{machine_name(first)}:{first.settings.baseline}"
    return ranked.get(own) or next(iter(ranked.values()), None)


def _row(place: _Place, base: _Place | None) -> MergedRow:
    machine, result = place
    step = result.step_seconds
    row = MergedRow(
        **fields_of(result),
        machine=machine.name,
        parity=result.parity.status,
        seconds_per_step=None if step is None else step.median,
        interval95=None if step is None else step.interval95,
        samples_per_second=result.samples_per_second,
        epoch_seconds=result.epoch_seconds,
    )
    return row if base is None or not result.ranked else _related(row, place, base)


def _related(row: MergedRow, place: _Place, base: _Place) -> MergedRow:
    cost, base_cost = _dollars(place), _dollars(base)
    speedup, interval = _speedup(place, base)
    return msgspec.structs.replace(
        row,
        speedup=speedup,
        speedup95=interval,
        no_verdict=no_verdict(base.result, place.result),
        dollars_per_epoch=cost,
        relative_cost=cost / base_cost if cost is not None and base_cost else None,
    )


def _dollars(place: _Place) -> float | None:
    """Of an epoch, as polybench.report.comparisons has it."""
    price, seconds = place.machine.prices.get(place.result.device), place.result.epoch_seconds
    return None if price is None or seconds is None else seconds / 3600 * price * devices(place.result)


def _speedup(place: _Place, base: _Place) -> tuple[float | None, tuple[float, float] | None]:
    """Round by round within one study; between two as of studies that have nothing in common."""
    if place is base:
        return 1.0, None
    if place.machine is base.machine:
        found = relative(base.result, place.result)
        return (found.speedup, found.interval95) if found else (None, None)
    ratio = relative_across_studies(base.result, place.result)
    return ratio.value, ratio.interval95
