"""Merges studies of one workload on several machines into one table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from polybench.analysis.diff import format_value
from polybench.errors import BadInput, lookup_or_suggest
from polybench.results.comparisons import compare_costs, compare_results, compare_throughput, dollars_per_epoch
from polybench.results.interference import inconclusive_reason
from polybench.results.repetitions import Repetitions
from polybench.results.summaries import StudySummary
from polybench.results.warnings import shared_warnings
from polybench.schema.analyses import Machine, MachineResult, MergeDocument
from polybench.schema.options import RENAME, merge_prices, parse_price_key
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import difference_of_shifts

_WORKLOAD = ("model", "pass_", "data_sha256", "batch_size", "optimizer", "input", "augment")
"""Settings that must be equal. Machines may differ in threads; precision belongs to the configuration."""

Prices = Mapping[str, float]
"""Dollars per hour by `DEVICE` for all machines, or by `MACHINE:DEVICE`; DEVICE may be `cpu-16` as well."""


class _MachineConfiguration(NamedTuple):
    """A configuration on a machine."""

    machine: Machine
    result: Result

    @property
    def name(self) -> str:
        return f"{self.machine.name}:{self.result.configuration}"


def merge(
    studies: Sequence[StudyDocument],
    prices: Prices,
    baseline: str | None = None,
    failed_machines: Mapping[str, str] | None = None,
    saved: Sequence[StudySummary] = (),
) -> MergeDocument:
    """Compare the configurations of all studies with the baseline, `MACHINE:CONFIGURATION`.

    `prices` override those of the studies. `failed_machines` are those of a cluster run, with reasons; one
    study is enough for it. Intervals between studies contain the spread between those of their machines, estimated
    from `saved` studies.

    Raises:
        BadInput: there is only one study, a study occurs twice, the workloads differ, or a machine or
            configuration does not exist.
    """
    _check_studies(studies, is_cluster=failed_machines is not None)
    named = dict(zip(_names(studies), studies, strict=True))
    repetitions = Repetitions(saved, named)
    machines = [_machine(name, study, prices, repetitions) for name, study in named.items()]
    _check_prices(prices, list(zip(machines, studies, strict=True)))
    configurations = [
        _MachineConfiguration(machine, result)
        for machine, study in zip(machines, studies, strict=True)
        for result in study.results
    ]
    found = _find_baseline(configurations, studies[0], baseline)
    return MergeDocument(
        settings=studies[0].settings,
        baseline=found and found.name,
        machines=machines,
        results=[_machine_result(one, found, repetitions) for one in configurations],
        failed_machines=dict(failed_machines or {}),
        warnings=shared_warnings(list(named.items()), "machine"),
    )


def _check_studies(studies: Sequence[StudyDocument], *, is_cluster: bool) -> None:
    if len(studies) < 2 and not is_cluster:
        raise BadInput("merge requires at least two studies; use polybench show for a single one")
    first = studies[0]
    for number, other in enumerate(studies):
        if any(other.id == earlier.id for earlier in studies[:number]):
            raise BadInput(f"study {other.id} occurs twice; give each study once")
        for name in _WORKLOAD:
            one, two = (getattr(study.settings, name) for study in (first, other))
            if one != two:
                setting = {"data_sha256": "images", **RENAME}.get(name, name.replace("_", " "))
                values = [format_value(msgspec.to_builtins(value))[:40] for value in (one, two)]
                raise BadInput(
                    f"cannot merge studies of different workloads: {setting} is {values[0]} in {first.id},"
                    f" {values[1]} in {other.id}"
                )


def _names(studies: Sequence[StudyDocument]) -> Iterator[str]:
    """Yield a unique name of each machine, numbered like repeats of a configuration."""
    seen: Counter[str] = Counter()
    for study in studies:
        name = machine_name(study)
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"


def machine_name(study: StudyDocument) -> str:
    """Return the machine's label in the study file, else its host name."""
    return study.machine_label or study.host.hostname


def _machine(name: str, study: StudyDocument, prices: Prices, repetitions: Repetitions) -> Machine:
    threads = study.settings.threads
    own = {key.removeprefix(f"{name}:"): price for key, price in prices.items() if key.startswith(f"{name}:")}
    merged = study.settings.prices | merge_prices(prices, threads) | merge_prices(own, threads)
    return Machine(
        name=name,
        study=study.id,
        created=study.created,
        cpu=study.host.cpu,
        cores=study.host.cores,
        gpus=study.host.gpus,
        threads=threads,
        prices={result.device: merged[result.device] for result in study.results if result.device in merged},
        spreads={result.device: repetitions.spread(name, device=result.device) for result in study.results},
    )


def _check_prices(prices: Prices, studies: Sequence[tuple[Machine, StudyDocument]]) -> None:
    """Reject prices that apply to no machine; one that a more specific price overrides is valid."""
    machines = {machine.name: machine for machine, _ in studies}
    for name in prices:
        host, _, price = name.partition(":")
        if not price or host == "cuda":  # a device may have a number: cuda:1
            host, price = "", name
        else:
            lookup_or_suggest(host, machines, "machine")
        device = parse_price_key(price)
        matching = [
            machine
            for machine, study in studies
            if host in ("", machine.name) and any(result.device == device for result in study.results)
        ]
        if not matching:
            problem = f"no configuration ran on {device}"
            fix = f" of {host}" if host else "; devices are cpu, cuda, cuda:1, ..."
            raise BadInput(f"--price {name}: {problem}{fix}")
        if not any(merge_prices({price: prices[name]}, machine.threads) for machine in matching):
            threads = ", ".join(f"{machine.name} {machine.threads}" for machine in matching)
            raise BadInput(f"--price {name}: no machine used that many threads; threads by machine: {threads}")


def _find_baseline(
    configurations: Sequence[_MachineConfiguration], first: StudyDocument, name: str | None
) -> _MachineConfiguration | None:
    ranked = {one.name: one for one in configurations if one.result.is_ranked}
    if name is not None:
        return lookup_or_suggest(name, ranked, "configuration")
    default = f"{machine_name(first)}:{first.settings.baseline}"
    return ranked.get(default) or next(iter(ranked.values()), None)


def _machine_result(
    one: _MachineConfiguration, baseline: _MachineConfiguration | None, repetitions: Repetitions
) -> MachineResult:
    machine, result = one
    step = result.step_time
    row = MachineResult(
        **status_fields(result),
        machine=machine.name,
        parity=result.parity.status,
        step_seconds=None if step is None else step.mean,
        ci95=None if step is None else step.ci95,
        items_per_second=result.items_per_second,
        epoch_seconds=result.epoch_seconds,
    )
    if baseline is None or not result.is_ranked:
        return row
    side_by_side = machine is baseline.machine
    shifts = difference_of_shifts(
        *(repetitions.spread(side.machine.name, device=side.result.device) for side in (baseline, one))
    )
    if side_by_side:
        found = compare_results(baseline.result, result)
    else:
        found = compare_throughput(baseline.result, result, shifts)
    if found is not None:
        row.speedup, row.speedup_ci95 = found.speedup, found.ci95
    row.inconclusive_reason = found.inconclusive_reason if found else inconclusive_reason(baseline.result, result)
    row.dollars_per_epoch = dollars_per_epoch(result, machine.prices)
    baseline_dollars = dollars_per_epoch(baseline.result, baseline.machine.prices)
    if row.dollars_per_epoch is not None:
        cost = compare_costs(
            baseline.result, result, baseline_dollars, row.dollars_per_epoch, None if side_by_side else shifts
        )
        row.relative_cost, row.relative_cost_ci95 = cost.relative, cost.ci95
    return row
