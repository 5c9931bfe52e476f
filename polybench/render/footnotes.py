"""Texts below the table of a study: the few notes that readers need, and all conditions and limitations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from polybench.render.table import one_line, share_lines, wrap
from polybench.schema import units
from polybench.schema.metrics import is_side_by_side
from polybench.schema.names import namer
from polybench.schema.options import EngineName
from polybench.schema.parity import KnownDeviation
from polybench.schema.resources import PeakComparison
from polybench.schema.result import Result, TimeToAccuracy, library_versions
from polybench.schema.study import StudyDocument

_ENOUGH_COLLECTIONS = 5
"""Pauses from which the mean step knows their share roughly."""

_KEY_LINES = 3
"""Lines of the most important notes below a table."""

_PREDICATE = re.compile(r" (?:goes|computes|divides) .*")


class KeyNotes(NamedTuple):
    """The most important notes, and the marks of rows that they are about, such as "[1]", by configuration."""

    lines: list[str]
    marks: dict[str, str]


def key_notes(study: StudyDocument, columns: Collection[str], width: int) -> KeyNotes:
    """Choose the notes that fit into a few lines: intervals, footnotes of rows, the garbage collector, repetitions."""
    lines = [*_interval_notes(study), *_memory_group_notes(study)]
    marks: dict[str, str] = {}
    left = _KEY_LINES - sum(map(_line_count, lines, repeat(width)))
    for text, configurations in (_row_footnotes(study) if "parity" in columns else {}).items():
        mark = f"[{len(set(marks.values())) + 1}]"
        needed = _line_count(f"{mark} {text}", width)
        if needed <= left:
            left -= needed
            lines.append(f"{mark} {text}")
            marks |= {name: f"{marks[name]} {mark}" if name in marks else mark for name in configurations}
    for text in [*_collector_notes(study), *_repetition_notes(study)]:
        needed = _line_count(text, width)
        if needed <= left:
            left -= needed
            lines.append(text)
    return KeyNotes(lines, marks)


def _line_count(note: str, width: int) -> int:
    return wrap(note, width, first_indent="  ", indent="    ").count("\n") + 1


def _row_footnotes(study: StudyDocument) -> dict[str, list[str]]:
    """Map each footnote to the configurations whose rows refer to it, the most serious ones first."""
    found: dict[str, list[str]] = {}
    deviations = _largest_deviations(study)
    for result in study.results:
        texts = []
        if failed_parity(result):
            texts.append(_parity_failure(result))
        if result.is_ranked and result.status == "interrupted":
            texts.append(_interruption(result))
        if result.is_ranked and result.caveat:
            texts.append(f"for teaching only: {result.caveat}")
        if result.is_measured and result.parity.known_deviations:
            texts += [one for engine, one in deviations.items() if engine == result.engine]
        for text in texts:
            found.setdefault(text, []).append(result.configuration)
    return found


def _largest_deviations(study: StudyDocument) -> dict[str, str]:
    """Describe the largest known deviation of each engine."""
    largest: dict[str, KnownDeviation] = {}
    rules: dict[str, set[str]] = {}
    for result in study.results:
        for one in result.parity.known_deviations:
            rules.setdefault(result.engine, set()).add(one.rule)
            largest[result.engine] = max(largest.get(result.engine, one), one, key=lambda found: found.error)
    return {
        engine: f"{_subject(one.rule)}: {one.tensor} is {units.format_percent(one.error)} off the exact rule"
        + (f"; {units.plural(len(rules[engine]) - 1, 'smaller deviation')}" if len(rules[engine]) > 1 else "")
        for engine, one in largest.items()
    }


def _subject(rule: str) -> str:
    """Return "max-pool gradient" of "max-pool gradient goes to the first value ..."; the notes have the whole rule."""
    return _PREDICATE.sub("", one_line(rule))


def _collector_notes(study: StudyDocument) -> Iterator[str]:
    """Name the collector's part of mean steps that differ from typical steps by more than the tolerance."""
    name = namer(study)
    for result in study.results:
        without = result.seconds_without_collection(study.settings.tolerance) if result.is_ranked else None
        if without is not None and result.step_time is not None:
            step = result.step_time.mean
            yield (
                f"{name(result)} collects garbage for {units.format_part(step - without, step)};"
                f" a step without it takes {units.format_seconds(without)}"
            )


def _repetition_notes(study: StudyDocument) -> list[str]:
    return [study.repetitions.description] if study.repetitions else []


def _parity_failure(result: Result) -> str:
    return f"parity check failed: {one_line(result.parity.reason or result.reason or 'see polybench parity')}"


def _interruption(result: Result) -> str:
    return f"interrupted: {one_line(result.reason or 'times cover the finished rounds')}"


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
        *(f"{one.configuration}: {_parity_failure(one)}" for one in study.results if failed_parity(one)),
        *_deviation_notes(study),
        *share_lines(
            (result.configuration, f"for teaching only: {result.caveat}")
            for result in study.results
            if result.is_ranked and result.caveat
        ),
        *_memory_group_notes(study),
        *_pipeline_notes(study),
        *_collector_notes(study),
        *_repetition_notes(study),
        *_rare_pause_notes(study),
        *data_parallel_notes(study, shown),
        *_source_notes(study, shown),
        *(peak_notes(one.peak for one in study.results if one.peak) if "pct_of_peak" in shown else ()),
        *(_training_notes(study) if {"accuracy", "time_to_accuracy", "test_loss", "time_to_loss"} & shown else ()),
        *(
            f"{one.configuration}: {_interruption(one)}"
            for one in study.results
            if one.is_ranked and one.status == "interrupted"
        ),
        *map(one_line, study.warnings),
        *(f"{one.configuration}: {one_line(warning)}" for one in study.results for warning in one.warnings),
    ]


def failed_parity(result: Result) -> bool:
    """Test whether a result was measured but failed the parity check, which excludes it from the ranking."""
    return (result.is_measured or result.busy) and result.parity.status == "fail"


def _interval_notes(study: StudyDocument) -> Iterator[str]:
    measured = [result.step_times for result in study.results if result.step_times and not result.busy]
    processes = max((len(times.values) for times in measured), default=0)
    if processes > 1:
        yield f"Brackets: 95% intervals over {processes} runs, each in a fresh process, of this study."


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
    return share_lines(
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
    return share_lines(notes)


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
    return [*share_lines(notes), *share_lines(native), *([comparable] if native else [])]


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
    notes = share_lines((result.configuration, _describe_replicas(result, input_kind)) for result in parallel)
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
