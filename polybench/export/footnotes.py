"""The lines below a table: what a reader must know before believing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from polybench.core import units
from polybench.core.document.identity import Deviation
from polybench.core.document.resources import Roof
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.names import EngineName
from polybench.export.one_line import one_line
from polybench.export.replica_notes import replica_notes

_NOTABLE_PAUSES = 0.01
"""Of a typical step; in most tables the intervals are wider than what is below it."""


def footnotes(study: StudyDocument, columns: Sequence[str]) -> list[str]:
    """How sure, environments, earlier checks, failed ones, deviations, pipelines, pauses, sources, roofs,
    trainings, cells cut short, warnings.

    What a number is of stands below tables that show it; what makes rows differ, below all.

    Args:
        study: which the table shows.
        columns: the names of those that it shows.
    """
    return [
        *_intervals(study),
        *_environments(study),
        *_earlier_checks(study),
        *(
            f"{result.cell}: parity check failed: "
            f"{one_line(result.parity.reason or result.reason or 'see polybench parity')}"
            for result in study.results
            if failed_parity(result)
        ),
        *_deviations(study),
        *_pipelines(study),
        *replica_notes(study, columns),
        *_pauses(study),
        *_sources(study, set(columns)),
        *(_native(study) if any(name.startswith("native_") for name in columns) else ()),
        *(roof_notes(result.roof for result in study.results if result.roof) if "roof" in columns else ()),
        *(_trainings(study) if {"accuracy", "time_to_accuracy"} & set(columns) else ()),
        *(
            f"{result.cell}: interrupted: {one_line(result.reason or 'times are of what was measured')}"
            for result in study.results
            if result.ranked and result.status == "interrupted"
        ),
        *(one_line(warning) for warning in study.warnings),
        *(f"{result.cell}: {one_line(warning)}" for result in study.results for warning in result.warnings),
    ]


def failed_parity(result: Result) -> bool:
    """Measured, but not the same arithmetic: has a row of its own, outside the ranking."""
    return result.measured and result.parity.status == "fail"


def _intervals(study: StudyDocument) -> list[str]:
    measured = [result.samples for result in study.results if result.samples]
    if not measured:
        return []
    if max(len(samples.step_seconds) for samples in measured) > 1:
        return ["intervals: 95%, over fresh processes"]
    return ["intervals: 95%, within one run: another run may well lie outside, so no verdict"]


def _environments(study: StudyDocument) -> list[str]:
    """Of engines that ran in an environment: versions, where they ran elsewhere, too, those that differ."""
    ran = [result for result in study.results if len(result.versions) > 1]  # one is what the launcher set
    notes = []
    for engine in dict.fromkeys(result.engine for result in ran if result.environment is not None):
        versions: dict[str | None, dict[str, str]] = {}
        for result in ran:
            if result.engine == engine:
                versions.setdefault(result.environment, _texts(result, study.host.python))
        for environment, own in versions.items():
            others = [other for name, other in versions.items() if name != environment]
            apart = {
                what: version
                for what, version in own.items()
                if not others or any(other.get(what) != version for other in others)
            }
            texts = [f"{what} {version}" for what, version in apart.items()]
            name = EngineName(engine, (), environment)
            notes.append(f"{name}: {', '.join(texts) or 'the same versions as elsewhere'}")
    return notes


def _texts(result: Result, python: str) -> dict[str, str]:
    """Its versions; the Python is polybench's own where it does not say."""
    own = {"python": python} | result.versions
    return {what: one_line(version) for what, version in own.items() if isinstance(version, str)}


def _earlier_checks(study: StudyDocument) -> list[str]:
    """Of cells that were identical when an earlier study checked them: when that was."""
    cells: dict[str, list[str]] = {}
    for result in study.results:
        checked = result.parity.checked
        if result.ranked and checked is not None and checked < study.created:  # both in UTC, ISO 8601
            cells.setdefault(one_line(checked[:16].replace("T", " ")), []).append(result.cell)
    return [
        f"{', '.join(names)}: identity checked {when} UTC, before this study; --recheck repeats it"
        for when, names in cells.items()
    ]


def _deviations(study: StudyDocument) -> list[str]:
    """One line for each declared convention of an engine, with its worst tensor."""
    worst: dict[tuple[str, str, str], Deviation] = {}
    for result in study.results:
        for deviation in result.parity.deviations:
            key = (result.engine, deviation.what, deviation.source)
            if key not in worst or deviation.error > worst[key].error:
                worst[key] = deviation
    return [
        f"{engine}: {what} ({source}); {deviation.tensor} {units.scientific(deviation.error)} from exact"
        for (engine, what, source), deviation in worst.items()
    ]


def _pipelines(study: StudyDocument) -> list[str]:
    """Whether each pipeline keeps up: what was reached, beside the rates of its two parts alone."""
    notes = []
    for result in study.results:
        pipeline, reached = result.pipeline, result.samples_per_second
        if pipeline is None or reached is None:
            continue
        alone, training = pipeline.pipeline_samples_per_second, pipeline.training_samples_per_second
        if alone and training:
            notes.append(
                f"{result.cell}: {units.count(reached)} images/s; its pipeline alone {units.count(alone)}, "
                f"training alone {units.count(training)}: {reached / min(alone, training):.0%} of the smaller"
            )
    return notes


def _pauses(study: StudyDocument) -> list[str]:
    """Of collectors whose pauses the medians leave out: what a step takes with them, and how fast that is."""
    notes = []
    for result in study.results:
        means, steps, pauses = result.block_means, result.step_seconds, result.gc.seconds_per_step
        if not (result.ranked and means and steps and pauses):
            continue
        if min(pauses, means.seconds_per_step - steps.median) < _NOTABLE_PAUSES * steps.median:
            continue
        note = (
            f"{result.cell}: the garbage collector takes {units.seconds(pauses)} of a mean step"
            f" ({units.seconds(means.seconds_per_step)}), in pauses that few steps meet and medians leave out"
        )
        if means.speedup is not None and result.relative and result.relative.baseline != result.cell:
            speed = units.with_interval(means.speedup, means.speedup_interval95)
            note += f"; the speedup by means is {speed}"
        notes.append(note)
    return notes


def _sources(study: StudyDocument, columns: AbstractSet[str]) -> list[str]:
    """What each engine's shown numbers of allocations and energy can see: one line for each source."""
    sources: dict[str, list[str]] = {}
    for result in study.results:
        found = (("", result.allocations.host), ("device_", result.allocations.device))
        for prefix, allocation in found:
            shown = {f"{prefix}allocated", f"{prefix}allocations"} & columns
            if allocation is not None and shown:
                where = prefix.replace("_", " ")
                text = f"{where}allocations are from {allocation.source}: {allocation.covers}"
                sources.setdefault(text, []).append(result.engine_name)
        if result.energy.source and "energy" in columns:
            sources.setdefault(f"energy is from {result.energy.source}", []).append(result.device)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in sources.items()]


def _native(study: StudyDocument) -> list[str]:
    """What the one yardstick counts, and in which engines it does not see all: one line for each kind."""
    covers: dict[str, list[str]] = {}
    for result in study.results:
        if (native := result.allocations.native) is not None:
            text = f"native allocations are counted by {native.source}: {native.covers}"
            covers.setdefault(text, []).append(result.engine_name)
    notes = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in covers.items()]
    alike = "native numbers are counted alike in all engines: they may be divided, others may not"
    return [*notes, alike] if notes else []


def roof_notes(roofs: Iterable[Roof]) -> list[str]:
    """What percentages of a roof are of: one line for each roof."""
    return [
        f"roof: {units.number(rate / 1e9)} GFLOP/s, the fastest product that was seen here ({source});"
        " convolutions count as if computed directly, so Winograd's algorithm may pass 100%"
        for rate, source in dict.fromkeys((roof.flops_per_second, roof.source) for roof in roofs)
    ]


def _trainings(study: StudyDocument) -> list[str]:
    """What an accuracy in the table is of, and whom the time to it leaves out."""
    trained = [result for result in study.results if result.trainings]
    if not trained:
        return []
    seeds = max(sum(training.complete for training in result.trainings) for result in trained)
    epochs = max(len(training.epochs) for result in trained for training in result.trainings)
    spread = "; accuracy ± its standard deviation over them" if seeds > 1 else ""
    return [
        f"trained for {units.plural(epochs, 'epoch')} at most, from {units.plural(seeds, 'seed')}{spread}",
        *(
            f"{result.cell}: {units.plural(unfinished, 'training')} not finished, and not in its accuracy"
            for result in trained
            if (unfinished := sum(not training.complete for training in result.trainings))
        ),
        *(
            f"{result.cell}: {found.reached} of {units.plural(found.seeds, 'seed')} reached"
            f" accuracy {found.accuracy:g}"
            for result in trained
            if (found := result.time_to_accuracy) and found.reached < found.seeds
        ),
    ]
