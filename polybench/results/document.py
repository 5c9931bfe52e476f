"""Computes the report of a study from its log. Pure."""

from __future__ import annotations

import contextlib
import math
import statistics as stdlib_statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import tomli_w

from polybench.errors import BadInput, lookup_or_suggest
from polybench.log import AnyEvent, DamagedLog, PlannedConfiguration, SettingsChosen, StudyEnded
from polybench.networks import find_model
from polybench.networks.model import Model
from polybench.networks.network_file import network_table
from polybench.planning.plan import Plan, engine_spec
from polybench.planning.shared_files import SharedFiles
from polybench.planning.study_file import stored_study
from polybench.planning.suggested_commands import OWN_DATA
from polybench.results.blocks import means_per_step
from polybench.results.comparisons import add_comparisons, allreduce_share, compare_with_peak, trained_epochs
from polybench.results.growth import add_growth, growth_warnings
from polybench.results.interference import (
    drop_affected_rounds,
    page_fault_warnings,
    summarize_interference,
    throttling_warnings,
)
from polybench.results.measured import MeasuredConfiguration, MeasuredStudy, measured_study
from polybench.results.repetitions import spread_between_days
from polybench.results.sanity import implausible_results
from polybench.results.summaries import StudySummary
from polybench.results.usage import summarize_usage
from polybench.results.warnings import final_warnings
from polybench.schema import units
from polybench.schema.encoding import decode, encode
from polybench.schema.metadata import Document, Host, Resumed, Settings
from polybench.schema.options import Study, Workload, max_epochs, merge_prices
from polybench.schema.resources import GarbageCollection, Interference
from polybench.schema.result import (
    ColdStart,
    EndedResult,
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

INTERRUPTED = "interrupted: the results contain only finished measurements"


def study_toml(study: Study) -> str:
    """Return the whole study as TOML, with defaults but without null values, which TOML cannot represent."""
    fields = {name: value for name, value in msgspec.to_builtins(study).items() if value is not None}
    if isinstance(study.model, Model):
        fields["model"] = network_table(study.model)
    return tomli_w.dumps(fields)


def choose_baseline(study: Study, runs: Sequence[MeasuredConfiguration]) -> str | None:
    """Return the requested baseline, else `torch/cpu`, else the first configuration, if possible one without a caveat.

    Configurations that were not measured or failed the parity check cannot be the baseline.
    """
    ranked = [run for run in runs if run.counted_blocks and run.is_ranked and not _is_busy(run)]
    ranked.sort(key=lambda run: run.planned.caveat is not None)
    measured = [run.configuration.name for run in ranked]
    preferred = study.baseline or DEFAULT_BASELINE
    return preferred if preferred in measured else next(iter(measured), None)


def _is_busy(run: MeasuredConfiguration) -> bool:
    """Return True if every timing block has interference."""
    blocks = [block for process in run.block_counters for block in process]
    return bool(blocks) and all(block.affected for block in blocks)


def derive(
    events: Iterable[AnyEvent],
    *,
    baseline: str | None = None,
    tolerance: float | None = None,
    prices: Mapping[str, float] | None = None,
    repetitions: Sequence[StudySummary] = (),
    salvage: bool = False,
) -> StudyDocument:
    """Compute the report of a log; nothing else enters.

    Args:
        events: of the whole log.
        baseline: a configuration in place of the study's baseline.
        tolerance: in place of the study's.
        prices: dollars per hour, as `--price`; those of the study remain for other devices.
        repetitions: saved studies, among which may be repetitions of this one on other days.
        salvage: use only the events before a damage.

    Raises:
        BadInput: the study does not have the baseline, or a price is that of an unknown device.
        DamagedLog: the events contradict each other, or nothing was begun.
    """
    measured = measured_study(events, salvage=salvage)
    document = derive_measured(measured, baseline=baseline, tolerance=tolerance, prices=prices)
    document.repetitions = spread_between_days(document, repetitions)
    return document


def derive_measured(
    measured: MeasuredStudy[MeasuredConfiguration],
    *,
    baseline: str | None = None,
    tolerance: float | None = None,
    prices: Mapping[str, float] | None = None,
) -> StudyDocument:
    """Compute the report of what the events of a log say, as `derive`."""
    Study(prices={**(prices or {})})  # refuses unknown devices
    if baseline is not None:
        lookup_or_suggest(baseline, {run.configuration.name: run for run in measured.runs}, "configuration")
    with damage_named(measured.header.id if measured.header else None):
        return _derive(measured, baseline, tolerance, prices or {})


@contextlib.contextmanager
def damage_named(id: str | None) -> Iterator[None]:
    """Raise DamagedLog, with the ID of the log, if nothing can be computed from its events."""
    try:
        yield
    except DamagedLog:
        raise
    except (
        ArithmeticError, LookupError, StopIteration, TypeError, ValueError, msgspec.MsgspecError, BadInput,
    ) as error:  # fmt: skip
        raise DamagedLog(f"cannot read the log of {id}: {error}") from error


D = TypeVar("D", bound=Document)


def within_bounds(document: D) -> D:
    """Return a document of a log that may be crafted; raises DamagedLog if a computed value is out of its bounds."""
    with damage_named(document.id):
        return decode(encode(document), type(document))


def report_of(events: Iterable[AnyEvent], **arguments: Any) -> StudyDocument:
    """Compute the report of a log that may be crafted; raises BadInput as `derive` and `within_bounds`."""
    return within_bounds(derive(events, **arguments))


def _derive(
    measured: MeasuredStudy[MeasuredConfiguration],
    baseline: str | None,
    tolerance: float | None,
    given_prices: Mapping[str, float],
) -> StudyDocument:
    header, settings = measured.header, measured.settings
    if header is None or settings is None:
        raise ValueError("it ended before its settings were known")
    study = stored_study(header.study, header.id)
    shared = settings.settings
    prices = merge_prices(study.prices, shared.threads) | merge_prices(given_prices, shared.threads)
    study = msgspec.structs.replace(study, baseline=baseline or study.baseline, prices={**study.prices, **given_prices})
    model = None if shared.dataset == OWN_DATA else find_model(study.model)
    baseline = choose_baseline(study, measured.runs)
    host = _host(header.host, measured)
    results = [_build_result(study, model, settings, run) for run in measured.runs]
    for result, run in zip(results, measured.runs, strict=True):
        if measured.end is not None and measured.end.outcome == "interrupted" and run.is_active:
            result.status, result.hint = "interrupted", measured.end.hint
            result.reason = f"interrupted after {len(run.counted_blocks)} of {study.processes} processes"
            if measured.end.failure is not None:
                result.status, result.reason = "failed", measured.end.failure
        elif result.busy and result.reason is None:
            result.reason = busy_reason(result.interference, host.busiest_programs)
            result.hint = busy_hint(result.interference)
    add_comparisons(results, baseline, prices, measured.groups)
    blocks = [budget.block for budget in measured.budgets if budget.block is not None]
    document = StudyDocument(
        id=header.id,
        created=header.created,
        polybench=header.polybench,
        argv=header.argv,
        resumed=[Resumed(one.resumed_at, one.processes, one.trainings) for one in measured.resumed],
        finished=measured.end is not None,
        title=header.title,
        tags=header.tags,
        study=header.study,
        machine_label=header.machine_label,
        settings=msgspec.structs.replace(
            shared,
            baseline=baseline,
            tolerance=shared.tolerance if tolerance is None else tolerance,
            prices=prices,
            rounds_per_process=_common(block.rounds for block in blocks),
            steps_per_round=_common(block.steps for block in blocks),
        ),
        host=host,
        interference=measured.interference,
        phase_seconds=measured.phases(),
        results=results,
        published=header.published,
    )
    document.warnings = _warnings(document, study, model, measured)
    return document


def _host(host: Host, measured: MeasuredStudy[MeasuredConfiguration]) -> Host:
    """Return the host with the waits for it to be idle."""
    waited, programs = measured.idle_wait_seconds, measured.busiest_programs
    return msgspec.structs.replace(host, idle_wait_seconds=waited, busiest_programs=programs)


def _warnings(
    document: StudyDocument, study: Study, model: Model | None, measured: MeasuredStudy[MeasuredConfiguration]
) -> list[str]:
    """Return the warnings of the log, and those about the results; each once."""
    texts = [warned.text for warned in measured.warnings]
    if measured.end is None:
        return texts
    if measured.end.outcome == "interrupted":
        texts.append(INTERRUPTED)
    cut_short = any(budget.cut_short for budget in measured.budgets)
    texts += final_warnings(document, study, cut_short)
    texts += _changed_since_printed(document, measured.end)
    assert measured.settings is not None
    if model is not None:
        texts += implausible_results(document.results, model, measured.settings.cache_bytes)
    return list(dict.fromkeys(texts))


def printed_results(document: StudyDocument) -> dict[str, Any]:
    """Return the fields of the end of a log that a report has printed."""
    measured = [one for one in document.results if one.step_time is not None]
    return {
        "step_seconds": {one.configuration: one.step_seconds for one in measured},
        "results": {one.configuration: EndedResult.of(one) for one in document.results},
    }


_SAME = 1e-9
"""Relative difference of two step times that were computed in the same way."""


def _changed_since_printed(document: StudyDocument, end: StudyEnded) -> Iterator[str]:
    """Yield each step time that differs from the one that was printed when the study ended."""
    now = {one.configuration: one.step_time.mean for one in document.results if one.step_time is not None}
    for name, printed in end.step_seconds.items():
        if not math.isclose(now.get(name, 0.0), printed, rel_tol=_SAME):
            today = units.format_seconds(now[name]) if name in now else "none"
            yield (
                f"{name}: polybench {end.polybench.version} printed a step time of {units.format_seconds(printed)};"
                f" this one computes {today} from the same log"
            )


def build_settings(plan: Plan, files: SharedFiles) -> Settings:
    """Return the settings of all configurations, as far as they are known before measuring."""
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
        rounds_per_process=None,
        steps_per_round=None,
        input=workload.input,
        loader_workers=workload.loader_workers,
        augment=workload.augment,
        epochs=study.epochs,
        baseline=None,
        prices={},
    )


def planned_configurations(plan: Plan, dataset: str) -> list[PlannedConfiguration]:
    """Return the configurations of a plan, before the environments of their workers are known."""
    return [
        PlannedConfiguration(
            configuration=configuration,
            workload=msgspec.structs.replace(plan.workload_of(configuration), dataset=dataset),
            caveat=engine_spec(configuration).caveat(configuration.variants),
            world_size=configuration.replicas if engine_spec(configuration).replicas == "processes" else 1,
            compiled_as_whole=not engine_spec(configuration).supports_layer_timing(configuration.variants),
        )
        for configuration in plan.configurations
    ]


def _common(numbers: Iterable[int]) -> int | None:
    """Return the number if all are equal; None if they differ or `numbers` is empty."""
    distinct = set(numbers)
    return distinct.pop() if len(distinct) == 1 else None


def _build_result(study: Study, model: Model | None, settings: SettingsChosen, run: MeasuredConfiguration) -> Result:
    """Build the record of a configuration; `add_comparisons` fills in what depends on other configurations.

    The network is None if only the session of Julia that measured it knows it.
    """
    configuration, workload = run.configuration, run.planned.workload
    trainings = [
        msgspec.structs.replace(training, complete=is_complete(training, study))
        for training in run.trainings
        if training.epochs
    ]
    values = run.step_times
    times = _summarize_times(run, values) if values else _NOT_TIMED
    step_time, step_times = None if _is_busy(run) else times.step_time, times.step_times
    epoch_seconds = statistics.mean_step(trained_epochs(trainings))[0] if trainings else None
    if step_time is not None and not trainings and settings.steps_in_epoch is not None:
        epoch_seconds = settings.steps_in_epoch * step_time.mean
    usage = summarize_usage(
        run.usage,
        configuration.device,
        add_growth(msgspec.structs.replace(run.memory, peak_rss_bytes=run.peak_rss_bytes), run.memory_in_use),
        epoch_seconds=epoch_seconds,
        device_count=1 if configuration.device == "cpu" else workload.replicas,
        gpu_bytes_freed=run.gpu_bytes_freed,
    )
    interference = summarize_interference(run.counted_blocks) if step_times else Interference()
    block_warnings = [
        *page_fault_warnings(interference, step_time, configuration.variants, study.malloc),
        *throttling_warnings(interference),
        *growth_warnings(usage.memory),
    ]
    complete = [training for training in trainings if training.complete]
    accuracies = [one.accuracy for one in complete if one.accuracy is not None]
    test_losses = [one.test_loss for one in complete if one.test_loss is not None]
    items_per_second = workload.batch_size / step_time.mean if step_time else None
    tokens = model.input_shape[0] if model is not None and model.vocabulary_size is not None else None
    result = Result(
        configuration=configuration.name,
        engine=configuration.engine,
        variant=configuration.variant,
        environment=configuration.environment,
        device=configuration.device,
        world_size=run.planned.world_size,
        workload=workload,
        caveat=run.planned.caveat,
        status=run.status,
        reason=run.reason,
        hint=run.hint,
        busy=step_times is not None and step_time is None,
        log_path=str(run.log_path) if run.log_path else None,
        warnings=[*run.warnings, *times.warnings, *usage.warnings, *block_warnings],
        versions=collect_versions(run),
        program=run.program,
        code_fingerprint=run.code_sha256,
        step_time=step_time,
        items_per_second=items_per_second,
        tokens_per_second=items_per_second * tokens if items_per_second and tokens else None,
        epoch_seconds=epoch_seconds,
        startup=_startup(run),
        python_call_overhead_seconds=_median(run.call_overheads) if step_time else None,
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
    result.peak = compare_with_peak(result, model, run.peaks) if model is not None else None
    return result


class _Times(NamedTuple):
    """Summaries of a configuration's step times."""

    step_time: StepTime | None = None
    step_times: StepTimes | None = None
    warnings: tuple[str, ...] = ()


_NOT_TIMED = _Times()


def _summarize_times(run: MeasuredConfiguration, values: list[list[list[float]]]) -> _Times:
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


def _garbage_collection(run: MeasuredConfiguration, step_time: StepTime | None) -> GarbageCollection:
    if not run.gc_stats or step_time is None:
        return GarbageCollection()
    seconds = sum(stats.seconds for stats in run.gc_stats)
    steps = step_time.n * run.steps_per_value
    return GarbageCollection(seconds / steps, sum(stats.full_collections for stats in run.gc_stats))


def _pipeline(run: MeasuredConfiguration, workload: Workload, step_time: StepTime | None) -> Pipeline | None:
    """Split the mean step time into waiting and computing, and add the throughput of each part alone."""
    if workload.input == "preload" or step_time is None:
        return None
    means, alone = means_per_step(Pipeline, run.counted_blocks), run.pipeline_and_training
    wait_seconds = means["data_wait_seconds_per_step"]
    return Pipeline(
        **means,
        compute_seconds_per_step=None if wait_seconds is None else max(0.0, step_time.mean - wait_seconds),
        pipeline_items_per_second=workload.batch_size / alone.pipeline_seconds if alone else None,
        training_items_per_second=workload.batch_size / alone.training_seconds if alone else None,
    )


def collect_versions(run: MeasuredConfiguration) -> dict[str, Any]:
    """Return versions by name of framework or library; `build`, `environment` and `inherited` are dicts."""
    info = run.engine_info
    versions: dict[str, Any] = {**info.versions, "build": info.build} if info else {}
    if info and run.python is not None:
        versions["python"], interpreter = run.python
        versions["build"] = {**info.build, "interpreter": interpreter}
    return {**versions, "environment": run.env_vars, "inherited": run.planned.inherited_env_vars}


_CACHED_FIRST_STEP = "first_step_with_cached_code_seconds"


def _startup(run: MeasuredConfiguration) -> ColdStart | None:
    """Return the mean cold start of the program, or that of a worker alone if the engine has no program.

    The first step of workers that ran cached code is a detail.
    """
    cached = [one.first_step_seconds for one in run.startups[1:] if "cached_code" in one.detail]
    detail = {_CACHED_FIRST_STEP: stdlib_statistics.median(cached)} if cached else {}
    if run.program_starts:
        return _mean_start(run, detail)
    if not run.startups or not run.started_alone:
        return None
    first = msgspec.structs.asdict(run.startups[0])
    return ColdStart(**first | {"detail": first["detail"] | detail})


def _mean_start(run: MeasuredConfiguration, detail: dict[str, float]) -> ColdStart:
    starts = run.program_starts
    phases = [field for field in Startup.__struct_fields__ if field.endswith("_seconds")]
    mean = {phase: stdlib_statistics.fmean(getattr(one, phase) for one in starts) for phase in phases}
    interval = statistics.student_interval([one.cold_start_seconds for one in starts])
    tool = _tool_seconds(run.startups, mean["process_seconds"]) if run.startups else None
    return ColdStart(**mean, detail=detail, starts=len(starts), ci95=interval, tool_seconds=tool)


def _tool_seconds(workers: Sequence[Startup], process_seconds: float) -> float:
    """Return what polybench's own code adds to the start of a worker at least: its modules, in Python and Julia.

    The process of a Flux worker is one of Python, which the user's program does not start.
    """
    own = 0.0 if any("julia_seconds" in one.detail for one in workers) else process_seconds
    return max(0.0, min(one.process_seconds + one.detail.get("polybench_seconds", 0.0) for one in workers) - own)
