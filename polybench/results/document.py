"""Builds the study document from the runs of its configurations. Pure."""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import tomli_w

from polybench.networks.model import Model
from polybench.networks.network_file import network_table
from polybench.planning.plan import Plan, engine_spec
from polybench.planning.schedule import TimingBlocks
from polybench.planning.shared_files import SharedFiles
from polybench.protocol.loaded_code import fingerprint
from polybench.results.comparisons import add_comparisons, allreduce_share, trained_epochs
from polybench.results.interference import (
    drop_affected_rounds,
    page_fault_warnings,
    summarize_interference,
    throttling_warnings,
)
from polybench.results.peak import FindPeaks, compare_with_peak
from polybench.results.run_state import ConfigurationRun, StudyRun
from polybench.results.usage import summarize_usage
from polybench.schema.metadata import Host, Resumed, Settings, StudyFileMetadata, ToolVersion
from polybench.schema.options import Id, Study, Workload, max_epochs, merge_prices
from polybench.schema.resources import GarbageCollection, Interference
from polybench.schema.result import (
    Pipeline,
    Result,
    Startup,
    StepTime,
    StepTimes,
    TimeToAccuracy,
    TimeToLoss,
    Training,
    busy_hint,
    busy_reason,
)
from polybench.schema.study import StudyDocument
from polybench.stats import statistics

DEFAULT_BASELINE = "torch/cpu"


class DocumentHeader(msgspec.Struct, frozen=True):
    """Holds the fields of a document that are known before the first measurement."""

    id: Id
    created: str
    tool_version: ToolVersion
    argv: list[str]
    study_file: StudyFileMetadata
    host: Host
    resumed: list[Resumed] = []
    anonymous: bool = False
    """If true, the saved document does not identify the machine."""


def study_toml(study: Study) -> str:
    """Return the whole study as TOML, with defaults but without null values, which TOML cannot represent."""
    fields = {name: value for name, value in msgspec.to_builtins(study).items() if value is not None}
    if isinstance(study.model, Model):
        fields["model"] = network_table(study.model)
    return tomli_w.dumps(fields)


def choose_baseline(plan: Plan, runs: Sequence[ConfigurationRun]) -> str | None:
    """Return the requested baseline, else `torch/cpu`, else the first configuration, if possible one without a caveat.

    Configurations that were not measured or failed the parity check cannot be the baseline.
    """
    ranked = [run.configuration for run in runs if measured_step_times(run) and run.is_ranked and not _is_busy(run)]
    ranked.sort(key=lambda one: engine_spec(one).caveat(one.variants) is not None)
    measured = [configuration.name for configuration in ranked]
    preferred = plan.study.baseline or DEFAULT_BASELINE
    return preferred if preferred in measured else next(iter(measured), None)


def _is_busy(run: ConfigurationRun) -> bool:
    """Return True if every timing block has interference."""
    blocks = [block for process in run.block_counters for block in process]
    return bool(blocks) and all(block.affected for block in blocks)


def measured_step_times(run: ConfigurationRun) -> list[list[list[float]]]:
    """Return the step times as [process][round][step], without empty rounds and trailing empty processes."""
    step_times = [[one_round for one_round in process if one_round] for process in run.step_times]
    while step_times and not step_times[-1]:
        step_times.pop()
    return step_times if any(step_times) else []


def build_study_document(
    header: DocumentHeader, plan: Plan, files: SharedFiles, measured: StudyRun, find_peaks: FindPeaks
) -> StudyDocument:
    """Build the document of all results so far; nothing else adds to it."""
    baseline = choose_baseline(plan, measured.runs)
    results = [_build_result(plan, files, run, find_peaks) for run in measured.runs]
    for result in results:
        if result.busy and result.reason is None:
            result.reason = busy_reason(result.interference, header.host.busiest_programs)
            result.hint = busy_hint(result.interference)
    add_comparisons(results, baseline, merge_prices(plan.study.prices, plan.workload.threads), measured.memory_groups)
    return StudyDocument(
        id=header.id,
        created=header.created,
        polybench=header.tool_version,
        argv=header.argv,
        resumed=header.resumed,
        finished=measured.finished,
        title=header.study_file.title,
        tags=[*header.study_file.tags],
        study=study_toml(plan.study),
        settings=build_settings(plan, files, baseline, measured.timing_blocks),
        host=header.host,
        interference=list(measured.interference),
        phase_seconds=measured.phase_seconds,
        warnings=list(measured.warnings),
        results=results,
        published=header.study_file.published,
    )


def build_settings(
    plan: Plan, files: SharedFiles, baseline: str | None = None, blocks: Sequence[TimingBlocks] = ()
) -> Settings:
    """Return the settings of all configurations; before any measurement without baseline and blocks."""
    study, workload = plan.study, plan.workload
    return Settings(
        model=plan.model.name,
        parameters=plan.model.parameters(),
        input_kind=plan.model.input_kind,
        dataset=files.dataset.name,
        is_official_data=files.dataset.is_official,
        data_sha256=files.dataset.sha256,
        weights_sha256=files.weights_sha256,
        batches_sha256=files.batches_sha256,
        pass_=workload.pass_,
        batch_size=workload.batch_size,
        optimizer=workload.optimizer,
        precision=",".join(study.precisions),
        threads=workload.threads,
        malloc=study.malloc,
        pinned_cpus=list(plan.cpus),
        seed=study.seed,
        processes=study.processes,
        tolerance=study.tolerance,
        rounds_per_process=_common(block.rounds for block in blocks),
        steps_per_round=_common(block.steps for block in blocks),
        input=workload.input,
        loader_workers=workload.loader_workers,
        augment=workload.augment,
        epochs=study.epochs,
        baseline=baseline,
        prices=merge_prices(study.prices, workload.threads),
    )


def _common(numbers: Iterable[int]) -> int | None:
    """Return the number if all are equal; None if they differ or `numbers` is empty."""
    distinct = set(numbers)
    return distinct.pop() if len(distinct) == 1 else None


def _build_result(plan: Plan, files: SharedFiles, run: ConfigurationRun, find_peaks: FindPeaks) -> Result:
    """Build the record of a configuration; `add_comparisons` fills in what depends on other configurations."""
    configuration, study = run.configuration, plan.study
    workload = msgspec.structs.replace(plan.workload_of(configuration), dataset=files.dataset.name)
    trainings = [
        msgspec.structs.replace(training, complete=is_complete(training, study))
        for training in run.trainings
        if training.epochs
    ]
    values = measured_step_times(run)
    times = _summarize_times(run, values) if values else _NOT_TIMED
    step_time, step_times = None if _is_busy(run) else times.step_time, times.step_times
    epoch_seconds = statistics.mean_step(trained_epochs(trainings))[0] if trainings else None
    if step_time is not None and not trainings:
        epoch_seconds = files.steps_in_epoch * step_time.mean
    usage = summarize_usage(
        run.usage,
        configuration.device,
        msgspec.structs.replace(run.memory, peak_rss_bytes=run.peak_rss_bytes),
        epoch_seconds=epoch_seconds,
        device_count=1 if configuration.device == "cpu" else workload.replicas,
        gpu_bytes_freed=run.gpu_bytes_freed,
    )
    interference = summarize_interference(step_times, run.block_counters) if step_times else Interference()
    kernel_warnings = [
        *page_fault_warnings(interference, step_time, configuration.variants, study.malloc),
        *throttling_warnings(interference),
    ]
    complete = [training for training in trainings if training.complete]
    accuracies = [one.accuracy for one in complete if one.accuracy is not None]
    test_losses = [one.test_loss for one in complete if one.test_loss is not None]
    items_per_second = workload.batch_size / step_time.mean if step_time else None
    reads_tokens = plan.model.vocabulary_size is not None
    result = Result(
        configuration=configuration.name,
        engine=configuration.engine,
        variant=configuration.variant,
        environment=configuration.environment,
        device=configuration.device,
        world_size=configuration.replicas if engine_spec(configuration).replicas == "processes" else 1,
        workload=workload,
        caveat=engine_spec(configuration).caveat(configuration.variants),
        status=run.status,
        reason=run.reason,
        hint=run.hint,
        busy=step_times is not None and step_time is None,
        log_path=str(run.log_path) if run.log_path else None,
        warnings=[*run.warnings, *times.warnings, *usage.warnings, *kernel_warnings],
        versions=collect_versions(run),
        code_fingerprint=fingerprint(run.code),
        step_time=step_time,
        items_per_second=items_per_second,
        tokens_per_second=items_per_second * plan.model.input_shape[0] if items_per_second and reads_tokens else None,
        epoch_seconds=epoch_seconds,
        startup=_startup(run.startups),
        python_call_overhead_seconds=_median(run.python_call_overhead_seconds) if step_time else None,
        allocations=run.allocations,
        gc=_garbage_collection(run, step_time),
        pipeline=_pipeline(run, workload, step_time),
        memory=usage.memory,
        utilization=usage.utilization,
        energy=usage.energy,
        interference=interference,
        parity=run.parity,
        losses=[loss for loss in run.losses if math.isfinite(loss)],
        accuracy=stdlib_statistics.fmean(accuracies) if accuracies else None,
        accuracy_std=stdlib_statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        time_to_accuracy=_time_to_accuracy(complete, study.target_accuracy),
        test_loss=stdlib_statistics.fmean(test_losses) if test_losses else None,
        test_loss_std=stdlib_statistics.stdev(test_losses) if len(test_losses) > 1 else None,
        time_to_loss=_time_to_loss(complete, study.target_loss),
        trainings=trainings,
        communication=allreduce_share(run.allreduce_times),
        step_times=step_times,
    )
    result.peak = compare_with_peak(result, plan.model, find_peaks)
    return result


class _Times(NamedTuple):
    """Summaries of a configuration's step times."""

    step_time: StepTime | None = None
    step_times: StepTimes | None = None
    warnings: tuple[str, ...] = ()


_NOT_TIMED = _Times()


def _summarize_times(run: ConfigurationRun, values: list[list[list[float]]]) -> _Times:
    unaffected = drop_affected_rounds(values, run.block_counters)
    trend = statistics.upward_trend(values) or 0.0
    slower = (
        f"steps became {trend:.1%} slower from the first round to the last; possible causes are"
        " thermal throttling, memory pressure and a memory leak"
    )
    return _Times(
        statistics.summarize_step_times(values, run.resolution, unaffected),
        StepTimes(run.resolution, run.steps_per_value, values),
        (slower,) if trend >= statistics.NOTABLE_TREND else (),
    )


def is_complete(training: Training, study: Study) -> bool:
    """Return True if the training reached its target or its last epoch."""
    accuracy, loss = study.target_accuracy, study.target_loss
    has_accuracy = accuracy is not None and training.time_to_accuracy(accuracy) is not None
    has_loss = loss is not None and training.time_to_loss(loss) is not None
    return has_accuracy or has_loss or len(training.epochs) == max_epochs(study)


def _median(values: Sequence[float]) -> float | None:
    return stdlib_statistics.median(values) if values else None


def _time_to_accuracy(complete: Sequence[Training], target: float | None) -> TimeToAccuracy | None:
    if target is None or not complete:
        return None
    return TimeToAccuracy(target, *_time_and_seeds([training.time_to_accuracy(target) for training in complete]))


def _time_to_loss(complete: Sequence[Training], target: float | None) -> TimeToLoss | None:
    if target is None or not complete:
        return None
    return TimeToLoss(target, *_time_and_seeds([training.time_to_loss(target) for training in complete]))


def _time_and_seeds(times: Sequence[float | None]) -> tuple[float | None, int, int]:
    """Return the median, None if not all seeds reached the target, and how many reached it of how many."""
    reached = [seconds for seconds in times if seconds is not None]
    return stdlib_statistics.median(reached) if len(reached) == len(times) else None, len(reached), len(times)


def _garbage_collection(run: ConfigurationRun, step_time: StepTime | None) -> GarbageCollection:
    if not run.gc_stats or step_time is None:
        return GarbageCollection()
    seconds = sum(stats.seconds for stats in run.gc_stats)
    steps = step_time.n * run.steps_per_value
    return GarbageCollection(seconds / steps, sum(stats.full_collections for stats in run.gc_stats))


def _pipeline(run: ConfigurationRun, workload: Workload, step_time: StepTime | None) -> Pipeline | None:
    """Split the mean step time into waiting and computing, and add the throughput of each part alone."""
    if workload.input == "preload" or step_time is None:
        return None
    wait_seconds = run.data_wait_seconds
    if wait_seconds is not None:
        wait_seconds /= step_time.n * run.steps_per_value
    alone = run.pipeline_and_training
    return Pipeline(
        data_wait_seconds_per_step=wait_seconds,
        compute_seconds_per_step=None if wait_seconds is None else max(0.0, step_time.mean - wait_seconds),
        pipeline_items_per_second=workload.batch_size / alone.pipeline_seconds if alone else None,
        training_items_per_second=workload.batch_size / alone.training_seconds if alone else None,
    )


def collect_versions(run: ConfigurationRun) -> dict[str, Any]:
    """Return versions by name of framework or library; `build`, `environment` and `inherited` are dicts."""
    info = run.engine_info
    versions: dict[str, Any] = {**info.versions, "build": info.build} if info else {}
    if info and run.interpreter.version is not None:
        versions["python"] = run.interpreter.version
        versions["build"] = {**info.build, "interpreter": run.interpreter.executable}
    return {**versions, "environment": run.env_vars, "inherited": run.inherited_env_vars}


_CACHED_FIRST_STEP = "first_step_with_cached_code_seconds"


def _startup(startups: Sequence[Startup]) -> Startup | None:
    """Return the cold start in the first process run, whose workers start one after the other, like a user's own.

    Workers of later process runs start together. The first step of those that ran cached code is a detail.
    """
    if not startups:
        return None
    first, *others = startups
    cached = [startup.first_step_seconds for startup in others if "cached_code" in startup.detail]
    detail = {_CACHED_FIRST_STEP: stdlib_statistics.median(cached)} if cached else {}
    return msgspec.structs.replace(first, detail=first.detail | detail)
