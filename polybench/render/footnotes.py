"""Footnotes of a table: conditions and limitations of the measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from polybench.render.table import INTERVALS, one_line
from polybench.schema import units
from polybench.schema.options import EngineName
from polybench.schema.parity import KnownDeviation
from polybench.schema.resources import PeakComparison
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_MIN_PAUSE = 0.01
"""Fraction of the median step time; shorter pauses are below the usual margin of error."""


def footnotes(study: StudyDocument, columns: Sequence[str]) -> list[str]:
    """Collect the footnotes of a study.

    Notes about a quantity depend on the shown columns. Notes about differences between rows are always
    present.

    Args:
        study: the study that the table shows.
        columns: names of the shown columns.
    """
    return [
        *_interval_notes(study),
        *_environment_notes(study),
        *_reused_check_notes(study),
        *(
            f"{result.configuration}: parity check failed: "
            f"{one_line(result.parity.reason or result.reason or 'see polybench parity')}"
            for result in study.results
            if failed_parity(result)
        ),
        *_deviation_notes(study),
        *_pipeline_notes(study),
        *data_parallel_notes(study, columns),
        *_gc_notes(study),
        *_source_notes(study, set(columns)),
        *(_native_allocation_notes(study) if any(name.startswith("native_") for name in columns) else ()),
        *(peak_notes(one.peak for one in study.results if one.peak) if "pct_of_peak" in columns else ()),
        *(_training_notes(study) if {"accuracy", "time_to_accuracy"} & set(columns) else ()),
        *(
            f"{result.configuration}: interrupted: {one_line(result.reason or 'times cover the finished rounds')}"
            for result in study.results
            if result.is_ranked and result.status == "interrupted"
        ),
        *(one_line(warning) for warning in study.warnings),
        *(f"{one.configuration}: {one_line(warning)}" for one in study.results for warning in one.warnings),
    ]


def failed_parity(result: Result) -> bool:
    """Test whether a result has times but failed the parity check, which excludes it from the ranking."""
    return result.is_measured and result.parity.status == "fail"


def _interval_notes(study: StudyDocument) -> list[str]:
    measured = [result.step_times for result in study.results if result.step_times]
    if not measured:
        return []
    if max(len(times.values) for times in measured) > 1:
        return [INTERVALS]
    return ["intervals: 95% confidence, within a single process, so comparisons are inconclusive"]


def _environment_notes(study: StudyDocument) -> list[str]:
    """List the versions of engines that ran in a Python environment, or the versions that differ."""
    ran = [result for result in study.results if len(result.versions) > 1]  # the launcher sets one
    notes = []
    for engine in dict.fromkeys(result.engine for result in ran if result.environment is not None):
        by_environment: dict[str | None, dict[str, str]] = {}
        for result in ran:
            if result.engine == engine:
                by_environment.setdefault(result.environment, _versions(result, study.host.python))
        for environment, versions in by_environment.items():
            others = [other for name, other in by_environment.items() if name != environment]
            different = [
                f"{package} {version}"
                for package, version in versions.items()
                if not others or any(other.get(package) != version for other in others)
            ]
            name = EngineName(engine, (), environment)
            notes.append(f"{name}: {', '.join(different) or 'same versions as the other environments'}")
    return notes


def _versions(result: Result, python: str) -> dict[str, str]:
    """Collect the versions of a result; the default Python version is that of polybench itself."""
    versions = {"python": python} | result.versions
    return {package: one_line(text) for package, text in versions.items() if isinstance(text, str)}


def _reused_check_notes(study: StudyDocument) -> list[str]:
    """Date the parity checks that the study reused from earlier studies."""
    by_date: dict[str, list[str]] = {}
    for result in study.results:
        checked = result.parity.checked_at
        if result.is_ranked and checked is not None and checked < study.created:  # both in UTC, ISO 8601
            by_date.setdefault(one_line(checked[:16].replace("T", " ")), []).append(result.configuration)
    return [
        f"{', '.join(names)}: reused the parity check of {date} UTC; repeat it with --recheck"
        for date, names in by_date.items()
    ]


def _deviation_notes(study: StudyDocument) -> list[str]:
    """Describe each known deviation of an engine, with its largest error."""
    largest: dict[tuple[str, str, str], KnownDeviation] = {}
    for result in study.results:
        for deviation in result.parity.known_deviations:
            key = (result.engine, deviation.rule, deviation.source)
            if key not in largest or deviation.error > largest[key].error:
                largest[key] = deviation
    return [
        f"{engine}: known deviation: {rule} ({source}); "
        f"largest error {units.format_scientific(deviation.error)}, in {deviation.tensor}"
        for (engine, rule, source), deviation in largest.items()
    ]


def _pipeline_notes(study: StudyDocument) -> list[str]:
    """Compare the throughput of each input pipeline with that of its two stages alone."""
    notes = []
    for result in study.results:
        pipeline, rate = result.pipeline, result.items_per_second
        if pipeline is None or rate is None:
            continue
        loading, training = pipeline.pipeline_items_per_second, pipeline.training_items_per_second
        if loading and training:
            notes.append(
                f"{result.configuration}: {units.format_count(rate)} images/s, "
                f"{rate / min(loading, training):.0%} of the rate of its slower stage "
                f"(input pipeline {units.format_count(loading)}, training {units.format_count(training)})"
            )
    return notes


def _gc_notes(study: StudyDocument) -> list[str]:
    """State the share of garbage collection in mean steps, if the median excludes its pauses."""
    notes = []
    for result in study.results:
        means, steps, pauses = result.mean_step_time, result.step_time, result.gc.seconds_per_step
        if not (result.is_ranked and means and steps and pauses):
            continue
        if min(pauses, means.seconds - steps.median) < _MIN_PAUSE * steps.median:
            continue
        note = (
            f"{result.configuration}: garbage collection takes {units.format_seconds(pauses)}"
            f" of the mean step ({units.format_seconds(means.seconds)}),"
            " in rare pauses that the median excludes"
        )
        comparison = result.vs_baseline
        if comparison and comparison.mean_speedup is not None and comparison.baseline != result.configuration:
            speedup = units.format_with_ci(comparison.mean_speedup, comparison.mean_ci95)
            note += f"; speedup of mean times: {speedup}"
        notes.append(note)
    return notes


def _source_notes(study: StudyDocument, columns: AbstractSet[str]) -> list[str]:
    """Name the sources of shown allocations and energy, and what they cover; one line per source."""
    sources: dict[str, list[str]] = {}
    for result in study.results:
        allocations = (("", result.allocations.host), ("device_", result.allocations.device))
        for prefix, allocation in allocations:
            shown = {f"{prefix}alloc_bytes_per_step", f"{prefix}allocs_per_step"} & columns
            if allocation is not None and shown:
                kind = prefix.replace("_", " ")
                text = f"{kind}allocations from {allocation.source}; coverage: {allocation.coverage}"
                sources.setdefault(text, []).append(result.engine_name)
        if result.energy.source and "energy" in columns:
            sources.setdefault(f"energy from {result.energy.source}", []).append(result.device)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in sources.items()]


def _native_allocation_notes(study: StudyDocument) -> list[str]:
    """Describe the counter of native allocations and its coverage; one line per coverage."""
    by_coverage: dict[str, list[str]] = {}
    for result in study.results:
        if (native := result.allocations.native) is not None:
            text = f"native allocations from {native.source}; coverage: {native.coverage}"
            by_coverage.setdefault(text, []).append(result.engine_name)
    notes = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in by_coverage.items()]
    comparable = (
        "native allocations: counted in the same way in all engines, so ratios between engines are valid;"
        " other counts are not comparable"
    )
    return [*notes, comparable] if notes else []


def peak_notes(peaks: Iterable[PeakComparison]) -> list[str]:
    """Describe the peaks that percentages refer to; one line per peak."""
    return [
        f"peak: {units.format_number(rate / 1e9)} GFLOP/s, fastest matrix product on this machine"
        f" ({source}); FLOPs of convolutions assume direct computation, so Winograd's algorithm can exceed 100%"
        for rate, source in dict.fromkeys((peak.flops_per_second, peak.source) for peak in peaks)
    ]


def _training_notes(study: StudyDocument) -> list[str]:
    """State the epochs and seeds behind accuracies, and trainings that these exclude."""
    trained = [result for result in study.results if result.trainings]
    if not trained:
        return []
    seeds = max(sum(training.complete for training in result.trainings) for result in trained)
    epochs = max(len(training.epochs) for result in trained for training in result.trainings)
    spread = "mean ± standard deviation over" if seeds > 1 else "from"
    return [
        f"accuracy: {spread} {units.plural(seeds, 'seed')}, after at most {units.plural(epochs, 'epoch')}",
        *(
            f"{result.configuration}: accuracy excludes {units.plural(unfinished, 'unfinished training')}"
            for result in trained
            if (unfinished := sum(not training.complete for training in result.trainings))
        ),
        *(
            f"{result.configuration}: {goal.seeds_reached} of {units.plural(goal.seeds, 'seed')} reached"
            f" accuracy {goal.accuracy:g}"
            for result in trained
            if (goal := result.time_to_accuracy) and goal.seeds_reached < goal.seeds
        ),
    ]


def data_parallel_notes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """Describe how each configuration divides its batch, and what the shown columns mean.

    Args:
        study: the study that the table shows.
        columns: names of the shown columns.
    """
    grouped: dict[str, list[str]] = {}
    for result in study.results:
        if result.is_ranked and result.workload.replicas > 1:
            text = _describe_replicas(result, study.settings.input_kind)
            grouped.setdefault(text, []).append(result.configuration)
    notes = [f"{', '.join(configurations)}: {text}" for text, configurations in grouped.items()]
    if not notes:
        return []
    if "parallel_efficiency" in columns and any(result.scaling for result in study.results):
        on_gpus = any(result.scaling and result.scaling.devices > 1 for result in study.results)
        baseline = "one GPU, divided by the number of GPUs" if on_gpus else "one replica on the same threads"
        notes.append(f"parallel efficiency: {study.settings.input_kind}s/s relative to {baseline}")
    if "allreduce_share" in columns:
        sources = dict.fromkeys(one.communication.source for one in study.results if one.communication)
        notes += [f"all-reduce share: {source}" for source in sources]
    return notes


def _describe_replicas(result: Result, input_kind: str) -> str:
    replicas, workload = result.workload.replicas, result.workload
    shard = f"{units.plural(workload.batch_size // replicas, input_kind)} per batch each"
    if result.world_size == 1:
        threads = units.plural(workload.threads, "thread")
        return f"{replicas} devices in one process share {threads}, with {shard}"
    threads = units.plural(max(1, workload.threads // replicas), "thread")
    return (
        f"{replicas} processes with {threads} and {shard}; times, page faults and context switches are those"
        " of rank 0, memory and allocations are totals"
    )
