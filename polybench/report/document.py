"""Cell records -> the study's document. Pure: nothing is measured, saved or printed here."""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import tomli_w

from polybench.core import statistics
from polybench.core.document.circumstances import Background, Host, Resumed, Settings, Tool
from polybench.core.document.resources import GarbageCollection
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import BlockMeans, Pipeline, Samples, Startup, StepSeconds
from polybench.core.document.training import TimeToAccuracy, Training
from polybench.core.model import Model
from polybench.core.prices import prices_with
from polybench.core.spec import Study, Workload, most_epochs
from polybench.planning.network_table import network_table
from polybench.planning.pace import Block
from polybench.planning.plan import Plan, row
from polybench.planning.shared_files import SharedFiles
from polybench.report.cell_record import CellRecord
from polybench.report.comparisons import relate
from polybench.report.disturbance import add_disturbance, undisturbed
from polybench.report.replicas import communication
from polybench.report.usage import add_usage

DEFAULT_BASELINE = "torch/cpu"

_NOTABLE_RISE = 0.01
"""A trend below this is real perhaps, but changes no conclusion."""


class Context(msgspec.Struct, frozen=True):
    """What is known before the first cell is measured."""

    id: str
    created: str
    tool: Tool
    argv: list[str]
    background: Background
    host: Host
    resumed: list[Resumed] = []
    anonymous: bool = False
    """Whether what tells whose machine it is stays out of the document."""


def study_toml(study: Study) -> str:
    """The whole study, defaults included, as TOML; what is derived is left out, since TOML has no null."""
    fields = {name: value for name, value in msgspec.to_builtins(study).items() if value is not None}
    if isinstance(study.model, Model):
        fields["model"] = network_table(study.model)
    return tomli_w.dumps(fields)


def baseline(plan: Plan, records: Sequence[CellRecord]) -> str | None:
    """The cell that others are compared with: as asked for, else `torch/cpu`, else the first.

    Only a cell that was measured and did not fail its parity check can be it.
    """
    measured = [record.cell.name for record in records if rounds_of(record) and record.ranked]
    wanted = plan.study.baseline or DEFAULT_BASELINE
    return wanted if wanted in measured else next(iter(measured), None)


def rounds_of(record: CellRecord) -> list[list[list[float]]]:
    """The record's samples without a process that measured nothing at its end."""
    samples = [[one_round for one_round in process if one_round] for process in record.samples]
    while samples and not samples[-1]:
        samples.pop()
    return samples if any(samples) else []


def summarize(
    context: Context,
    plan: Plan,
    files: SharedFiles,
    records: Sequence[CellRecord],
    warnings: Sequence[str],
    blocks: Sequence[Block],
) -> StudyDocument:
    """Everything known so far as one document.

    Args:
        blocks: of each group of cells, once they are known.
    """
    base = baseline(plan, records)
    results = [_result(plan, files, record) for record in records]
    relate(results, base, prices_with(plan.study.prices, plan.workload.threads))
    return StudyDocument(
        id=context.id,
        created=context.created,
        polybench=context.tool,
        argv=context.argv,
        resumed=context.resumed,
        title=context.background.title,
        study=study_toml(plan.study),
        settings=settings_of(plan, files, base, blocks),
        host=context.host,
        warnings=list(warnings),
        results=results,
        published=context.background.published,
    )


def settings_of(
    plan: Plan, files: SharedFiles, base: str | None = None, blocks: Sequence[Block] = ()
) -> Settings:
    """What all cells share; without a baseline and blocks, before anything is measured."""
    study, workload = plan.study, plan.workload
    return Settings(
        model=plan.model.name,
        parameters=plan.model.parameters(),
        unit=plan.model.unit,
        dataset=files.dataset.name,
        data_sha256=files.dataset.sha256,
        weights_sha256=files.weights_sha256,
        batches_sha256=files.batches_sha256,
        batch_size=workload.batch_size,
        optimizer=workload.optimizer,
        precision=",".join(study.precisions),
        threads=workload.threads,
        heap=study.heap,
        pinned=list(plan.cpus),
        seed=study.seed,
        processes=study.processes,
        rounds=_common(block.rounds for block in blocks),
        steps_per_round=_common(block.steps for block in blocks),
        input=workload.input,
        workers=workload.workers,
        augment=workload.augment,
        epochs=study.epochs,
        baseline=base,
        prices=prices_with(study.prices, workload.threads),
    )


def _common(numbers: Iterable[int]) -> int | None:
    """The number that all groups of cells have; None where they differ, or nothing is known yet."""
    different = set(numbers)
    return different.pop() if len(different) == 1 else None


def _result(plan: Plan, files: SharedFiles, record: CellRecord) -> Result:
    cell, samples = record.cell, rounds_of(record)
    result = Result(
        cell=cell.name,
        engine=cell.engine,
        variant=cell.variant,
        environment=cell.environment,
        device=cell.device,
        ranks=cell.replicas if row(cell).replicas == "processes" else 1,
        workload=msgspec.structs.replace(plan.workload_of(cell), dataset=files.dataset.name),
        status=record.status,
        reason=record.reason,
        remedy=record.remedy,
        log=str(record.log) if record.log else None,
        versions=known_versions(record),
        parity=record.parity,
        losses=[loss for loss in record.losses if math.isfinite(loss)],
        startup=_startup(record.startups),
        warnings=list(record.warnings),
        trainings=[
            msgspec.structs.replace(training, complete=completed(training, plan.study))
            for training in record.trainings
            if training.epochs
        ],
        allocations=record.allocations,
        communication=communication(record.exchange),
        memory=msgspec.structs.replace(record.memory, peak_rss_bytes=record.peak_rss_bytes),
    )
    _add_trainings(result, plan.study.until.get("accuracy"))
    if samples:
        _add_times(result, record, samples, files.steps_in_epoch)
    if record.usage:
        add_usage(result, record.usage, record.gpu_bytes_freed)
    add_disturbance(result, record.readings, plan.study.heap)
    return result


def _add_times(
    result: Result, record: CellRecord, samples: list[list[list[float]]], steps_in_epoch: int
) -> None:
    quiet = undisturbed(samples, record.readings)
    seconds = statistics.step_seconds(samples, record.sample_kind, quiet)
    result.step_seconds = seconds
    result.samples_per_second = result.workload.batch_size / seconds.median
    if not result.trainings:
        result.epoch_seconds = steps_in_epoch * seconds.median
    mean, interval = statistics.mean_step(quiet)
    result.block_means = BlockMeans(mean, interval, result.workload.batch_size / mean, steps_in_epoch * mean)
    result.gc = _collection(record, seconds.n * record.steps_per_sample)
    result.call_seconds = stdlib_statistics.median(record.call_seconds) if record.call_seconds else None
    result.pipeline = _pipeline(record, result.workload, seconds)
    result.samples = Samples(record.sample_kind, record.steps_per_sample, samples)
    if (rise := statistics.rising_trend(samples) or 0.0) >= _NOTABLE_RISE:
        result.warnings.append(
            f"steps became {rise:.1%} slower from the first round to the last (heat, memory, a leak?)"
        )


def completed(training: Training, study: Study) -> bool:
    """Whether it went on for as long as it was to."""
    wanted = study.until.get("accuracy")
    reached = wanted is not None and training.seconds_to(wanted) is not None
    return reached or len(training.epochs) == most_epochs(study)


def _add_trainings(result: Result, wanted: float | None) -> None:
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
    if wanted is not None and complete:
        times = [training.seconds_to(wanted) for training in complete]
        reached = [seconds for seconds in times if seconds is not None]
        median = stdlib_statistics.median(reached) if len(reached) == len(times) else None
        result.time_to_accuracy = TimeToAccuracy(wanted, median, len(reached), len(times))


def _collection(record: CellRecord, steps: int) -> GarbageCollection:
    if not record.collected:
        return GarbageCollection()
    seconds = sum(collected.seconds for collected in record.collected)
    return GarbageCollection(seconds / steps, sum(collected.full_sweeps for collected in record.collected))


def _pipeline(record: CellRecord, workload: Workload, seconds: StepSeconds) -> Pipeline | None:
    """How a step's time splits: means, for only they add up; the rates of both parts alone."""
    if workload.input == "preload":
        return None
    waiting = record.waited_seconds
    if waiting is not None:
        waiting /= seconds.n * record.steps_per_sample
    alone = record.timed_separately
    return Pipeline(
        waiting_seconds_per_step=waiting,
        compute_seconds_per_step=None if waiting is None else max(0.0, seconds.mean - waiting),
        pipeline_samples_per_second=workload.batch_size / alone.pipeline_seconds if alone else None,
        training_samples_per_second=workload.batch_size / alone.training_seconds if alone else None,
    )


def known_versions(record: CellRecord) -> dict[str, Any]:
    """Of its framework and libraries, by name; `build`, `environment` and `inherited` are dictionaries."""
    probe = record.probe
    learned: dict[str, Any] = {**probe.versions, "build": probe.build} if probe else {}
    if probe and record.python.version is not None:
        learned["python"] = record.python.version
        learned["build"] = {**probe.build, "interpreter": record.python.executable}
    return {**learned, "environment": record.environment, "inherited": record.inherited}


_CACHED_FIRST_STEP = "first_step_with_cached_code_seconds"


def _startup(startups: Sequence[Startup]) -> Startup | None:
    """Medians over the processes that started as a user's own does.

    The others used code that an earlier process had compiled; what their first step took is a detail.
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
    parts = [msgspec.to_builtins(startup) for startup in startups]
    names = [name for name in parts[0] if name != "detail"]
    details = {key for part in parts for key in part["detail"]}
    medians = {name: stdlib_statistics.median(part[name] for part in parts) for name in names}
    detail = {
        key: stdlib_statistics.median(part["detail"][key] for part in parts if key in part["detail"])
        for key in sorted(details)
    }
    return Startup(**medians, detail=detail)
