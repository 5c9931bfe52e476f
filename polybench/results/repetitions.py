"""Collects the repetitions among saved studies: studies that measured the same on one machine. Pure."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from statistics import variance
from typing import Literal

import msgspec

from polybench.results.summaries import ConfigurationSummary, StudySummary, summarize
from polybench.schema.analyses import RepetitionSpread, StudySpread
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import Repetition, estimate_spread
from polybench.stats.statistics import student_quantile

MAX_STUDIES = 100
"""Number of the newest studies of a machine that are used."""


class Repetitions:
    """Saved studies, whose repetitions show how much studies of one machine differ.

    `compared` documents are added under these names, as studies of one machine if they are to be treated so.
    """

    def __init__(
        self, saved: Sequence[StudySummary], compared: dict[str, StudyDocument], *, same_machine: bool = False
    ) -> None:
        ids = {document.id for document in compared.values()}
        added = {name: summarize(document) for name, document in compared.items()}
        self._machines = {name: one.machine or name for name, one in added.items()}
        if same_machine:
            self._machines = dict.fromkeys(added, next(iter(self._machines.values())))
        self._studies = [one for one in saved if one.id not in ids]
        self._studies += [
            msgspec.structs.replace(one, id=name, machine=self._machines[name]) for name, one in added.items()
        ]

    @functools.cache  # noqa: B019  # rows share it
    def spread(
        self, name: str, *, device: str, without: tuple[str, str | None] | None = None, of_own_shifts: bool = False
    ) -> StudySpread:
        """Return the spread on the machine of a compared document, `without` one of them, or an engine in it."""
        studies = [one for one in self._studies if one.machine == self._machines[name]][-MAX_STUDIES:]
        repetitions = [
            found
            for study in studies
            for one in study.configurations
            if one.device == device and without not in ((study.id, None), (study.id, one.engine))
            if (found := _repetition(study, one)) is not None
        ]
        return estimate_spread(repetitions, of_own_shifts=of_own_shifts)


def spread_between_days(document: StudyDocument, saved: Sequence[StudySummary]) -> RepetitionSpread | None:
    """Return how much a study and its saved repetitions on other days differ; None without a repetition."""
    this = summarize(document)
    others = [one for one in saved if one.machine and one.machine == this.machine and _day(one) != _day(this)]
    groups = {name: one.group for name, one in _repetitions(this).items()}
    baseline = groups.get(document.settings.baseline or "") if len(groups) > 1 else None
    levels: dict[str, list[float]] = {group: [] for group in groups.values() if group != baseline}
    for study in (this, *others[-MAX_STUDIES:]):
        logs = {one.group: one.log for one in _repetitions(study).values()}
        if baseline is None or baseline in logs:
            for group in levels.keys() & logs.keys():
                levels[group].append(logs[group] - (logs[baseline] if baseline else 0.0))
    repeated = [found for found in levels.values() if len(found) > 1]
    if not repeated:
        return None
    freedoms = [len(found) - 1 for found in repeated]
    squares = sum(freedom * variance(found) for freedom, found in zip(freedoms, repeated, strict=True))
    quantity: Literal["speeds", "mean steps"] = "speeds" if baseline else "mean steps"
    return RepetitionSpread(quantity, math.sqrt(squares / sum(freedoms)), max(freedoms) + 1)


def _day(summary: StudySummary) -> str:
    return (summary.created or "")[:10]


def _repetitions(study: StudySummary) -> dict[str, Repetition]:
    """Return the configurations of a study that can be compared with other studies, by name."""
    found = {one.configuration: _repetition(study, one) for one in study.configurations}
    return {name: one for name, one in found.items() if one is not None}


def _repetition(study: StudySummary, one: ConfigurationSummary) -> Repetition | None:
    """Return the log of a step time with the variance of the mean over processes; None for a single process.

    Its group is that of results of the same configuration, settings and versions, also of the operating system.
    """
    seconds, ended = one.step_seconds, one.ended
    if seconds is None or ended.processes < 2:
        return None
    same = one.configuration, one.workload, ended.versions, one.variables, study.conditions
    group = zlib.crc32(msgspec.json.encode(same, order="sorted"))
    low, high = ended.ci95 or (seconds, seconds)
    squared_error = (math.log(high / low) / 2 / student_quantile(ended.processes - 1)) ** 2
    return Repetition(study.id, f"{group:08x}", math.log(seconds), squared_error)
