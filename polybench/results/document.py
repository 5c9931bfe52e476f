"""Builds the study document from the runs of its configurations. Pure."""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import tomli_w

from polybench.networks.model import Model
from polybench.networks.network_file import network_table
from polybench.planning.plan import Plan, engine_spec
from polybench.planning.schedule import TimingBlocks
from polybench.planning.shared_files import SharedFiles
from polybench.results.comparisons import add_comparisons, allreduce_share
from polybench.results.interference import add_interference, drop_affected_rounds
from polybench.results.run_state import ConfigurationRun
from polybench.results.usage import add_usage
from polybench.schema.metadata import Host, Resumed, Settings, StudyFileMetadata, ToolVersion
from polybench.schema.options import Study, Workload, max_epochs, merge_prices
from polybench.schema.resources import GarbageCollection
from polybench.schema.result import (
    MeanStepTime,
    Pipeline,
    Result,
    Startup,
    StepTime,
    StepTimes,
    TimeToAccuracy,
    Training,
)
from polybench.schema.study import StudyDocument
from polybench.stats import statistics

DEFAULT_BASELINE = "torch/cpu"

_NOTABLE_TREND = 0.01
"""Relative increase of step times over the rounds from which polybench prints a warning."""


class DocumentHeader(msgspec.Struct, frozen=True):
    """Holds the fields of a document that are known before the first measurement."""

    id: str
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
    """Return the requested baseline, else `torch/cpu`, else the first configuration.

    Configurations that were not measured or failed the parity check cannot be the baseline.
    """
    measured = [run.configuration.name for run in runs if measured_step_times(run) and run.is_ranked]
    preferred = plan.study.baseline or DEFAULT_BASELINE
    return preferred if preferred in measured else next(iter(measured), None)


def measured_step_times(run: ConfigurationRun) -> list[list[list[float]]]:
    """Return the step times as [process][round][step], without empty rounds and trailing empty processes."""
    step_times = [[one_round for one_round in process if one_round] for process in run.step_times]
    while step_times and not step_times[-1]:
        step_times.pop()
    return step_times if any(step_times) else []


def build_study_document(
    header: DocumentHeader,
    plan: Plan,
    files: SharedFiles,
    runs: Sequence[ConfigurationRun],
    warnings: Sequence[str],
    blocks: Sequence[TimingBlocks],
) -> StudyDocument:
    """Build the document of all results so far.

    Args:
        header: fields that are known before the first measurement.
        plan: the study's plan.
        files: data, weights and batches of the study.
        runs: of all configurations.
        warnings: of the study as a whole.
        blocks: rounds and steps of each group of configurations, as far as they are known.
    """
    baseline = choose_baseline(plan, runs)
    results = [_build_result(plan, files, run) for run in runs]
    add_comparisons(results, baseline, merge_prices(plan.study.prices, plan.workload.threads))
    return StudyDocument(
        id=header.id,
        created=header.created,
        polybench=header.tool_version,
        argv=header.argv,
        resumed=header.resumed,
        title=header.study_file.title,
        study=study_toml(plan.study),
        settings=build_settings(plan, files, baseline, blocks),
        host=header.host,
        warnings=list(warnings),
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
        data_sha256=files.dataset.sha256,
        weights_sha256=files.weights_sha256,
        batches_sha256=files.batches_sha256,
        batch_size=workload.batch_size,
        optimizer=workload.optimizer,
        precision=",".join(study.precisions),
        threads=workload.threads,
        malloc=study.malloc,
        pinned_cpus=list(plan.cpus),
        seed=study.seed,
        processes=study.processes,
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


def _build_result(plan: Plan, files: SharedFiles, run: ConfigurationRun) -> Result:
    configuration, step_times = run.configuration, measured_step_times(run)
    result = Result(
        configuration=configuration.name,
        engine=configuration.engine,
        variant=configuration.variant,
        environment=configuration.environment,
        device=configuration.device,
        world_size=configuration.replicas if engine_spec(configuration).replicas == "processes" else 1,
        workload=msgspec.structs.replace(plan.workload_of(configuration), dataset=files.dataset.name),
        status=run.status,
        reason=run.reason,
        hint=run.hint,
        log_path=str(run.log_path) if run.log_path else None,
        versions=collect_versions(run),
        parity=run.parity,
        losses=[loss for loss in run.losses if math.isfinite(loss)],
        startup=_startup(run.startups),
        warnings=list(run.warnings),
        trainings=[
            msgspec.structs.replace(training, complete=is_complete(training, plan.study))
            for training in run.trainings
            if training.epochs
        ],
        allocations=run.allocations,
        communication=allreduce_share(run.allreduce_times),
        memory=msgspec.structs.replace(run.memory, peak_rss_bytes=run.peak_rss_bytes),
    )
    _add_trainings(result, plan.study.target_accuracy)
    if step_times:
        _add_times(result, run, step_times, files.steps_in_epoch)
    if run.usage:
        add_usage(result, run.usage, run.gpu_bytes_freed)
    add_interference(result, run.block_counters, plan.study.malloc)
    return result


def _add_times(result: Result, run: ConfigurationRun, step_times: list[list[list[float]]], steps_in_epoch: int) -> None:
    unaffected = drop_affected_rounds(step_times, run.block_counters)
    seconds = statistics.summarize_step_times(step_times, run.resolution, unaffected)
    result.step_time = seconds
    result.items_per_second = result.workload.batch_size / seconds.median
    if not result.trainings:
        result.epoch_seconds = steps_in_epoch * seconds.median
    mean, interval = statistics.mean_step(unaffected)
    result.mean_step_time = MeanStepTime(mean, interval, result.workload.batch_size / mean, steps_in_epoch * mean)
    result.gc = _garbage_collection(run, seconds.n * run.steps_per_value)
    result.python_call_overhead_seconds = (
        stdlib_statistics.median(run.python_call_overhead_seconds) if run.python_call_overhead_seconds else None
    )
    result.pipeline = _pipeline(run, result.workload, seconds)
    result.step_times = StepTimes(run.resolution, run.steps_per_value, step_times)
    if (trend := statistics.upward_trend(step_times) or 0.0) >= _NOTABLE_TREND:
        result.warnings.append(
            f"steps became {trend:.1%} slower from the first round to the last; possible causes are"
            " thermal throttling, memory pressure and a memory leak"
        )


def is_complete(training: Training, study: Study) -> bool:
    """Return True if the training reached its target accuracy or its last epoch."""
    target = study.target_accuracy
    reached = target is not None and training.time_to_accuracy(target) is not None
    return reached or len(training.epochs) == max_epochs(study)


def _add_trainings(result: Result, target_accuracy: float | None) -> None:
    if not result.trainings:
        return
    result.epoch_seconds = stdlib_statistics.median(
        epoch.seconds for training in result.trainings for epoch in training.epochs
    )
    complete = [training for training in result.trainings if training.complete]
    final = [training.accuracy for training in complete if training.accuracy is not None]
    if final:
        result.accuracy = stdlib_statistics.fmean(final)
        result.accuracy_std = stdlib_statistics.stdev(final) if len(final) > 1 else None
    if target_accuracy is not None and complete:
        times = [training.time_to_accuracy(target_accuracy) for training in complete]
        reached = [seconds for seconds in times if seconds is not None]
        median = stdlib_statistics.median(reached) if len(reached) == len(times) else None
        result.time_to_accuracy = TimeToAccuracy(target_accuracy, median, len(reached), len(times))


def _garbage_collection(run: ConfigurationRun, steps: int) -> GarbageCollection:
    if not run.gc_stats:
        return GarbageCollection()
    seconds = sum(stats.seconds for stats in run.gc_stats)
    return GarbageCollection(seconds / steps, sum(stats.full_collections for stats in run.gc_stats))


def _pipeline(run: ConfigurationRun, workload: Workload, seconds: StepTime) -> Pipeline | None:
    """Split the mean step time into waiting and computing, and add the throughput of each part alone."""
    if workload.input == "preload":
        return None
    wait_seconds = run.data_wait_seconds
    if wait_seconds is not None:
        wait_seconds /= seconds.n * run.steps_per_value
    alone = run.pipeline_and_training
    return Pipeline(
        data_wait_seconds_per_step=wait_seconds,
        compute_seconds_per_step=None if wait_seconds is None else max(0.0, seconds.mean - wait_seconds),
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
    """Return medians over the processes that started like a user's own process.

    The other processes ran code that an earlier process had compiled. Their first step is a detail.
    """
    cached = [startup for startup in startups if "cached_code" in startup.detail]
    median = _median_startup([startup for startup in startups if startup not in cached] or startups)
    if cached and median is not None:
        first_step = stdlib_statistics.median(startup.first_step_seconds for startup in cached)
        median.detail[_CACHED_FIRST_STEP] = first_step
    return median


def _median_startup(startups: Sequence[Startup]) -> Startup | None:
    if not startups:
        return None
    phases = [msgspec.to_builtins(startup) for startup in startups]
    names = [name for name in phases[0] if name != "detail"]
    details = {key for phase in phases for key in phase["detail"]}
    medians = {name: stdlib_statistics.median(phase[name] for phase in phases) for name in names}
    detail = {
        key: stdlib_statistics.median(phase["detail"][key] for phase in phases if key in phase["detail"])
        for key in sorted(details)
    }
    return Startup(**medians, detail=detail)
