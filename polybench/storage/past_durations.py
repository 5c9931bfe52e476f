"""Estimates how long a study takes from saved studies of this machine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.planning.estimate import NO_PAST_MEASUREMENTS, ZERO_ESTIMATE, Estimate, PastMeasurements, estimate
from polybench.planning.plan import Plan
from polybench.schema.encoding import decode
from polybench.schema.metadata import Host, PhaseSeconds
from polybench.schema.options import Study, Workload
from polybench.schema.result import Startup
from polybench.schema.study import SCHEMA
from polybench.storage.store import Store
from polybench.storage.summaries import Filters, PartialDocument, PartialResult

CheckScope = Literal["new", "all", "only"]

_MAX_STUDIES = 10
"""Number of the newest matching studies that are read."""

_ROUND_FIELDS = ("processes", "rounds_per_process", "steps_per_round", "budget", "margin")
"""Fields of a study that determine its number of rounds."""
_COUNTING_FIELDS = ("metrics",)
"""Fields of a study that determine whether allocations are counted."""


class _Result(PartialResult, kw_only=True):
    workload: Workload
    startup: Startup | None = None


class _Document(PartialDocument, kw_only=True):
    """The fields of `StudyDocument` that the estimate needs. Skipping step times makes decoding fast."""

    study: str
    results: Sequence[_Result]
    phase_seconds: PhaseSeconds | None = None


def estimate_duration(plan: Plan, past: PastMeasurements, *, check: CheckScope = "new") -> Estimate:
    """Estimate how long the plan's study takes, from earlier studies of this machine.

    Args:
        check: scope of the parity check: "new" skips it if an earlier study has passed it, "all" repeats it,
            and "only" estimates nothing else.
    """
    found = estimate(plan, past._replace(all_checked=past.all_checked and check == "new"))
    return ZERO_ESTIMATE._replace(parity=found.parity) if check == "only" else found


def past_measurements(plan: Plan, store: Store, host: Host) -> PastMeasurements:
    """Collect durations from the newest studies that share the workload and a configuration.

    If no such study has started a configuration, its start in a study of another workload is a better guess than none.
    """
    past = NO_PAST_MEASUREMENTS
    configurations = {configuration.name: plan.workload_of(configuration) for configuration in plan.configurations}
    same_model = Filters(model=plan.model.name, host=host.hostname)
    for document in itertools.islice(_documents(store, host, same_model, plan.workload.batch_size), _MAX_STUDIES):
        results = {
            one.configuration: one
            for one in document.results
            if one.configuration in configurations
            and one.status == "ok"
            and _same_workload(one.workload, configurations[one.configuration])
        }
        steps = {name: one.step_time.median for name, one in results.items() if one.step_time}
        starts = _starts(results.values())
        past = past._replace(step_seconds=steps | {**past.step_seconds}, start_seconds=starts | {**past.start_seconds})
        phase_seconds = document.phase_seconds
        is_whole = document.finished and len(document.results) == len(results) == len(configurations)
        if phase_seconds is None or not phase_seconds.process_starts or not is_whole:
            continue
        if past.phase_seconds is None:
            past = past._replace(
                phase_seconds=phase_seconds,
                has_same_rounds=_same_fields(document.study, plan.study, _ROUND_FIELDS),
                all_checked=all(one.parity.status == "pass" for one in results.values()),
            )
        if past.counting_seconds is None and _same_fields(document.study, plan.study, _COUNTING_FIELDS):
            past = past._replace(counting_seconds=phase_seconds)
        if past.parity_seconds is None and phase_seconds.parity > 0:
            past = past._replace(parity_seconds=phase_seconds.parity)
    if configurations.keys() - past.start_seconds.keys():
        for document in itertools.islice(_documents(store, host, Filters(host=host.hostname)), _MAX_STUDIES):
            starts = _starts(one for one in document.results if one.configuration in configurations)
            past = past._replace(start_seconds=starts | {**past.start_seconds})
    return past


def _starts(results: Iterable[_Result]) -> dict[str, float]:
    """Return the seconds of each cold start, by configuration."""
    return {one.configuration: one.startup.cold_start_seconds for one in results if one.startup and one.status == "ok"}


def _documents(store: Store, host: Host, filters: Filters, batch_size: int | None = None) -> Iterator[_Document]:
    """Yield readable documents of this machine that match, the newest first."""
    with contextlib.suppress(BadInput):
        for one in reversed(store.summaries()):
            if batch_size not in (None, one.batch_size) or not filters.matches(one):
                continue
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                text = read_regular_file(store.folder / f"{one.file}.json")
                document = decode(text, _Document, SCHEMA)
                if document.host.cpu == host.cpu:
                    yield document


def _same_workload(saved: Workload, planned: Workload) -> bool:
    """Return True if steps take equally long. A saved document may name the same data set differently."""
    return msgspec.structs.replace(saved, dataset="") == msgspec.structs.replace(planned, dataset="")


def _same_fields(saved_toml: str, study: Study, fields: Sequence[str]) -> bool:
    try:
        saved = msgspec.toml.decode(saved_toml, type=Study)
    except (msgspec.MsgspecError, BadInput):
        return False
    return all(getattr(saved, name) == getattr(study, name) for name in fields)
