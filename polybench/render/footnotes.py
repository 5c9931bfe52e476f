"""Texts below the table of a study: conditions and limitations, and each comparison in a sentence."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from polybench.render.table import INTERVALS, one_line
from polybench.schema import units
from polybench.schema.metrics import is_side_by_side
from polybench.schema.options import EngineName
from polybench.schema.parity import KnownDeviation
from polybench.schema.resources import PeakComparison
from polybench.schema.result import (
    SINGLE_PROCESS,
    AccuracyDifference,
    Comparison,
    Result,
    TimeToAccuracy,
    library_versions,
)
from polybench.schema.study import StudyDocument

_ENOUGH_COLLECTIONS = 5
"""Pauses from which the mean step knows their share roughly."""


def footnotes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """Collect the footnotes of a study.

    Notes about a quantity depend on the names of the shown columns. Notes about differences between rows are
    always present.
    """
    shown = set(columns)
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
        *_share_lines(
            (result.configuration, f"for teaching only: {result.caveat}")
            for result in study.results
            if result.is_ranked and result.caveat
        ),
        *_memory_group_notes(study),
        *_pipeline_notes(study),
        *_rare_pause_notes(study),
        *data_parallel_notes(study, shown),
        *_source_notes(study, shown),
        *(peak_notes(one.peak for one in study.results if one.peak) if "pct_of_peak" in shown else ()),
        *(_training_notes(study) if {"accuracy", "time_to_accuracy", "test_loss", "time_to_loss"} & shown else ()),
        *(
            f"{result.configuration}: interrupted: {one_line(result.reason or 'times cover the finished rounds')}"
            for result in study.results
            if result.is_ranked and result.status == "interrupted"
        ),
        *map(one_line, study.warnings),
        *(f"{one.configuration}: {one_line(warning)}" for one in study.results for warning in one.warnings),
    ]


def failed_parity(result: Result) -> bool:
    """Test whether a result has times but failed the parity check, which excludes it from the ranking."""
    return result.is_measured and result.parity.status == "fail"


def _share_lines(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Format pairs of a name and a text: one line per text, with all names."""
    names: dict[str, dict[str, None]] = {}
    for name, text in notes:
        names.setdefault(text, {})[name] = None
    return [f"{', '.join(found)}: {text}" for text, found in names.items()]


def _interval_notes(study: StudyDocument) -> Iterator[str]:
    processes = [len(result.step_times.values) for result in study.results if result.step_times]
    if max(processes, default=0) > 1:
        yield INTERVALS
    elif processes:
        yield "intervals: 95% confidence, within a single process, so comparisons are inconclusive"


def _memory_group_notes(study: StudyDocument) -> Iterator[str]:
    fields = ("vs_baseline", "gpu_speedup", "scaling")
    if not all(is_side_by_side(result, field) for result in study.results for field in fields):
        yield "* not measured side by side with the baseline, because memory cannot hold both workers"


def _environment_notes(study: StudyDocument) -> Iterator[str]:
    """List the versions of engines that ran in a Python environment, or the versions that differ."""
    ran = [result for result in study.results if library_versions(result.versions)]
    for engine in dict.fromkeys(result.engine for result in ran if result.environment is not None):
        by_environment: dict[str | None, dict[str, str]] = {}
        for result in ran:
            if result.engine == engine:
                # The default Python version is that of polybench itself.
                versions = {"python": study.host.python} | result.versions
                texts = {package: one_line(text) for package, text in library_versions(versions).items()}
                by_environment.setdefault(result.environment, texts)
        packages = {package for versions in by_environment.values() for package in versions}
        in_all = {name: {versions.get(name) for versions in by_environment.values()} for name in packages}
        varying = {name for name, versions in in_all.items() if len(by_environment) == 1 or len(versions) > 1}
        for environment, versions in by_environment.items():
            different = [f"{package} {version}" for package, version in versions.items() if package in varying]
            name = EngineName(engine, (), environment)
            yield f"{name}: {', '.join(different) or 'same versions as the other environments'}"


def _reused_check_notes(study: StudyDocument) -> list[str]:
    """Date the parity checks that the study reused from earlier studies."""
    reused = [
        (result.configuration, one_line(checked[:16].replace("T", " ")))
        for result in study.results
        if result.is_ranked
        and (checked := result.parity.checked_at) is not None
        and checked < study.created  # both in UTC, ISO 8601
    ]
    return _share_lines(
        (configuration, f"reused the parity check of {date} UTC; repeat it with --recheck")
        for configuration, date in reused
    )


def _deviation_notes(study: StudyDocument) -> Iterator[str]:
    """Describe each known deviation of an engine, with its largest error."""
    largest: dict[tuple[str, str, str], KnownDeviation] = {}
    for result in study.results:
        for deviation in result.parity.known_deviations:
            key = (result.engine, deviation.rule, deviation.source)
            largest[key] = max(largest.get(key, deviation), deviation, key=lambda one: one.error)
    for (engine, rule, source), deviation in largest.items():
        yield (
            f"{engine}: known deviation: {rule} ({source}); "
            f"largest error {units.format_scientific(deviation.error)}, in {deviation.tensor}"
        )


def _pipeline_notes(study: StudyDocument) -> Iterator[str]:
    """Compare the throughput of each input pipeline with that of its two stages alone."""
    for result in study.results:
        pipeline, rate = result.pipeline, result.items_per_second
        if pipeline is None or rate is None or pipeline.slower_stage is None:
            continue
        stages = {
            "input pipeline": pipeline.pipeline_items_per_second,
            "forward pass" if result.workload.is_forward_pass else "training": pipeline.training_items_per_second,
        }
        yield (
            f"{result.configuration}: {units.format_count(rate)} images/s, "
            f"{rate / pipeline.slower_stage:.0%} of the rate of its slower stage "
            f"({', '.join(f'{stage} {units.format_count(of_stage or 0)}' for stage, of_stage in stages.items())})"
        )


def _rare_pause_notes(study: StudyDocument) -> list[str]:
    """Name rows with so few full collections that their share of the mean step is left to chance."""
    notes = []
    for result in study.results:
        collections, step = result.gc.full_collections, result.step_time
        if result.is_ranked and collections is not None and collections < _ENOUGH_COLLECTIONS and step is not None:
            steps = step.n * (result.step_times.steps_per_value if result.step_times else 1)
            text = (
                f"{units.plural(collections, 'full garbage collection')} in {units.plural(steps, 'timed step')};"
                f" pauses rarer than one in {units.format_count(steps)} are not in the mean step"
            )
            notes.append((result.configuration, text))
    return _share_lines(notes)


def _source_notes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """Name the sources of shown allocations and energy, and what they cover."""
    shown = {
        "": "alloc_bytes_per_step" in columns or "allocs_per_step" in columns,
        "device ": "device_alloc_bytes_per_step" in columns or "device_allocs_per_step" in columns,
        "native ": any(name.startswith("native_") for name in columns),
    }
    notes: list[tuple[str, str]] = []
    native: list[tuple[str, str]] = []
    for result in study.results:
        found = result.allocations
        for kind, one in (("", found.host), ("device ", found.device), ("native ", found.native)):
            if one is not None and shown[kind]:
                text = f"{kind}allocations from {one.source}; coverage: {one.coverage}"
                (native if kind == "native " else notes).append((result.engine_name, text))
        if result.energy.source and "energy" in columns:
            notes.append((result.device, f"energy from {result.energy.source}"))
    comparable = "native allocations: counted alike in all engines; in brackets, the ratio to the baseline"
    return [*_share_lines(notes), *_share_lines(native), *([comparable] if native else [])]


def peak_notes(peaks: Iterable[PeakComparison]) -> list[str]:
    """Describe the peaks that percentages refer to; one line per peak."""
    return [
        f"peak: {units.format_number(rate / 1e9)} GFLOP/s, fastest matrix product on this machine"
        f" ({source}); FLOPs of convolutions assume direct computation, so Winograd's algorithm can exceed 100%"
        for rate, source in dict.fromkeys((peak.flops_per_second, peak.source) for peak in peaks)
    ]


def _training_notes(study: StudyDocument) -> Iterator[str]:
    """State the epochs and seeds behind accuracies, and trainings that these exclude."""
    trained = [result for result in study.results if result.trainings]
    if not trained:
        return
    seeds = max(sum(training.complete for training in result.trainings) for result in trained)
    epochs = max(len(training.epochs) for result in trained for training in result.trainings)
    spread = "mean ± standard deviation over" if seeds > 1 else "from"
    order = "" if study.settings.input == "pipeline" else "; every epoch has the same batches in the same order"
    yield (
        f"accuracy and test loss: {spread} {units.plural(seeds, 'seed')} of the initial weights, after at most"
        f" {units.plural(epochs, 'epoch')}{order}"
    )
    for result in trained:
        if unfinished := sum(not training.complete for training in result.trainings):
            excluded = units.plural(unfinished, "unfinished training")
            yield f"{result.configuration}: accuracy and test loss exclude {excluded}"
    for result in trained:
        if (goal := result.time_to_accuracy or result.time_to_loss) and goal.seeds_reached < goal.seeds:
            target = f"accuracy {goal.accuracy:g}" if isinstance(goal, TimeToAccuracy) else f"test loss {goal.loss:g}"
            yield f"{result.configuration}: {goal.seeds_reached} of {units.plural(goal.seeds, 'seed')} reached {target}"


def data_parallel_notes(study: StudyDocument, columns: Collection[str]) -> list[str]:
    """Describe how each configuration divides its batch, and what the shown columns mean."""
    input_kind = study.settings.input_kind
    parallel = [result for result in study.results if result.is_ranked and result.workload.replicas > 1]
    notes = _share_lines((result.configuration, _describe_replicas(result, input_kind)) for result in parallel)
    if not notes:
        return []
    if "parallel_efficiency" in columns and any(result.scaling for result in study.results):
        on_gpus = any(result.scaling and result.scaling.devices > 1 for result in study.results)
        baseline = "one GPU, divided by the number of GPUs" if on_gpus else "one replica on the same threads"
        notes.append(f"parallel efficiency: {input_kind}s/s relative to {baseline}")
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


def summary_sentences(study: StudyDocument) -> list[str]:
    """Compare ranked configurations with the baseline, GPUs with the CPU, and accuracies."""
    ranked = [result for result in study.results if result.is_for_production]
    by_configuration = {result.configuration: result for result in ranked}
    compared = [
        (by_configuration[one.baseline], result, one)
        for result in ranked
        if (one := result.vs_baseline) and one.baseline != result.configuration and one.baseline in by_configuration
    ]
    accuracies = [
        (by_configuration[difference.baseline], result, difference)
        for result in ranked
        if (difference := result.accuracy_difference) and difference.baseline in by_configuration
    ]
    on_gpus = [(result, result.gpu_speedup) for result in ranked if result.gpu_speedup]
    tolerance = study.settings.tolerance
    inconclusive = [
        *((" and ".join(_names(other, baseline)), one) for baseline, other, one in compared if one.is_inconclusive),
        *((f"{result.configuration} and {one.baseline}", one) for result, one in on_gpus if one.is_inconclusive),
    ]
    return [
        *(_sentence(*one, tolerance) for one in compared if not one[-1].is_inconclusive),
        *(_gpu_sentence(*one, tolerance) for one in on_gpus if not one[-1].is_inconclusive),
        *(
            f"Inconclusive: {names}."
            for names in _share_lines((names, one.inconclusive_reason or SINGLE_PROCESS) for names, one in inconclusive)
        ),
        *(_accuracy_sentence(*one) for one in accuracies),
    ]


def _gpu_sentence(result: Result, speedup: Comparison, tolerance: float) -> str:
    """Compare a GPU with the CPU in the form of published comparisons: "97.8 times; 99.0 % less time"."""
    times = units.format_with_ci(speedup.speedup, speedup.ci95)
    names = f"{times} times as fast as {speedup.baseline}"
    names += " in the forward pass" if result.workload.is_forward_pass else ""
    if difference := _no_difference(f"{result.configuration} and {speedup.baseline}", speedup, tolerance):
        return difference
    saved = 1 - 1 / speedup.speedup
    percent = units.format_number(100 * abs(saved))
    return f"{result.configuration} is {names}: {percent}% {'less' if saved >= 0 else 'more'} time."


def _no_difference(names: str, comparison: Comparison, tolerance: float) -> str | None:
    """State that two configurations do not differ, or hardly; None for a difference worth naming."""
    assert comparison.ci95 is not None  # otherwise it is inconclusive
    ratio = f"ratio {units.format_with_ci(comparison.speedup, comparison.ci95)}"
    if comparison.is_significant:
        is_small = abs(math.log(comparison.speedup)) < math.log1p(tolerance)
        return f"{names} differ by less than {units.format_percent(tolerance)}: {ratio}." if is_small else None
    low, high = comparison.ci95
    corrected = "" if low <= 1 <= high else ", not significant among this number of comparisons"
    return f"No significant difference between {names}: {ratio}{corrected}."


def _sentence(baseline: Result, other: Result, comparison: Comparison, tolerance: float) -> str:
    faster, slower = _names(other, baseline)
    speedup, interval = comparison.speedup, comparison.ci95
    if difference := _no_difference(f"{faster} and {slower}", comparison, tolerance):
        return difference
    if speedup < 1:
        faster, slower = _names(baseline, other)
        speedup, interval = 1 / speedup, interval and (1 / interval[1], 1 / interval[0])
    names = f"{units.format_with_ci(speedup, interval)} times as fast as {slower}"
    return f"{faster} is {names}."


def _accuracy_sentence(baseline: Result, other: Result, difference: AccuracyDifference) -> str:
    """State both accuracies with their spread over seeds, and whether they differ significantly."""
    first, second = _names(other, baseline)
    after = f"after {units.plural(difference.epochs, 'epoch')}"
    both = " and ".join(
        units.format_with_std(result.accuracy or 0.0, result.accuracy_std) for result in (other, baseline)
    )
    if difference.ci95 is None:
        return f"Accuracy of {first} and {second} {after}: {both} (inconclusive: one seed)."
    both = f"{both} over {units.plural(difference.seeds, 'seed')}"
    low, high = difference.ci95
    if not difference.is_significant:
        amount = units.format_difference(difference.value, difference.ci95)
        names = f"{first} and {second}"
        return f"No significant difference in accuracy between {names} {after}: {both}, difference {amount}."
    if difference.value < 0:
        amount, relation = units.format_difference(-difference.value, (-high, -low)), "below"
    else:
        amount, relation = units.format_difference(difference.value, difference.ci95), "above"
    return f"The accuracy of {first} is {amount} {relation} that of {second} {after}: {both}."


def _names(first: Result, second: Result) -> tuple[str, str]:
    """Name both configurations; if they share a device, only the second name contains it, and a forward pass."""
    name = _name(first) if first.device == second.device else f"{_name(first)} on {first.device}"
    measured = " in the forward pass" if second.workload.is_forward_pass else ""
    return name, f"{_name(second)} on {second.device}{measured}"


def _name(result: Result) -> str:
    return result.configuration.replace(f"/{result.device}", "")
