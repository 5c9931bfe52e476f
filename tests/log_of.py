"""The log of an invented study: events from which `derive` computes the same report.

What a document has only in total is in the first event of its kind, or in equal parts in each timing block.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from polybench.errors import BadInput
from polybench.log import (
    AllocationsCounted,
    AllreduceTimed,
    AnyEvent,
    BlockTimed,
    EngineLoaded,
    EpochTrained,
    Failed,
    GroupsChosen,
    Header,
    MemoryMeasured,
    OperationsTimed,
    ParityChecked,
    PeaksUsed,
    PhaseEnded,
    PipelineTimed,
    PlannedConfiguration,
    PointStarted,
    ProcessEnded,
    ProcessStarted,
    RoundMeasured,
    SettingsChosen,
    StudyEnded,
    StudyResumed,
    Warned,
    WorkerStarted,
    encode_line,
    header_of,
)
from polybench.machine.meters.gpu import THROTTLE_REASON_NAMES, GpuSample, GpuUsage
from polybench.machine.meters.observer import BlockUsage
from polybench.networks import find_model
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.planning.schedule import RoundBudget, TimingBlocks
from polybench.planning.study_file import stored_study
from polybench.protocol.calls import OperationTime
from polybench.results.document import DEFAULT_BASELINE, derive, printed_results
from polybench.results.sweep import MeasuredPoint, derive_sweep, sweep_end
from polybench.schema.measurements import LayerRow, LayersDocument, PeakMeasurement
from polybench.schema.metadata import Document
from polybench.schema.options import Configuration, Workload, merge_prices
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.resources import Allocations, BlockCounters, GarbageCollection, GcStats, Memory, PeakComparison
from polybench.schema.result import ConfigurationStatus, Result, library_versions
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized
from polybench.storage.store import Store


def save_document(store: Store, document: Document) -> Path:
    """Save the log of a study or of layers in the store's folder, and return its path."""
    if isinstance(document, LayersDocument):
        events = layers_events_of(document)
    else:
        assert isinstance(document, StudyDocument)
        events = events_of(document)
    path = store.log_path(header_of(events).id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(encode_line, events)))
    return path


def layers_events_of(document: LayersDocument) -> list[AnyEvent]:
    """Return the events of layers: those of a study, and the operations after each timing block.

    A row of a residual block is the sum of its layers. The collector's time, of which rows have only the mean, is the
    same in each round.
    """
    layers = split_layers(find_model(document.settings.model))
    rows = {one.configuration: one.rows for one in document.configurations}
    whole = {one.configuration: one.compiled_as_whole for one in document.configurations}
    inside = {layer.name for layer in layers if layer.name != layer.block}
    found: list[AnyEvent] = []
    for event in events_of(_study_of(document)):
        match event:
            case Header():
                expands = any(row.layer in inside for own in rows.values() for row in own)
                own_id = f"layers-{document.id.removeprefix('layers-')}"
                found.append(msgspec.structs.replace(event, id=own_id, command="layers", expand_blocks=expands))
            case SettingsChosen():
                planned = [
                    msgspec.structs.replace(one, compiled_as_whole=whole[one.name]) for one in event.configurations
                ]
                found.append(msgspec.structs.replace(event, configurations=planned))
            case BlockTimed() if rows[event.configuration]:
                timed = OperationsTimed(
                    configuration=event.configuration,
                    process=event.process,
                    round=event.round,
                    operations=[_operation(row, layers, event) for row in rows[event.configuration]],
                )
                found += [event, timed]
            case _:
                found.append(event)
    return found


def _operation(row: LayerRow, layers: Sequence[TimedLayer], block: BlockTimed) -> OperationTime:
    numbers = [
        number
        for number, layer in enumerate(layers)
        if row.layer in (layer.block, layer.name, layer.name.partition(" + ")[0])
        and (
            row.operation == "forward"
            or row.operation in [one.operation for one in layer.gradients()]
            or (row.operation == "relu gradient" and layer.has_relu)
        )
    ]
    return OperationTime(
        tuple(numbers), row.operation, row.seconds[block.process][block.round], row.gc_seconds_per_step
    )


def _study_of(document: LayersDocument) -> StudyDocument:
    """Return the study whose whole steps were measured beside the layers."""
    settings = document.settings
    own = {name: getattr(settings, name) for name in Workload.__struct_fields__ if hasattr(settings, name)}
    workload = Workload(**(own | {"precision": settings.precision.partition(",")[0]}))
    results = [
        Result(
            **{name: getattr(one, name) for name in ConfigurationStatus.__struct_fields__},
            workload=workload,
            parity=ParityCheck(one.parity),
            versions=one.versions,
            gc=GarbageCollection(one.gc_seconds_per_step),
            step_times=one.step_times,
            peak=one.peak,
        )
        for one in document.configurations
    ]
    return StudyDocument(
        **document.header(),
        study=document.study,
        settings=settings,
        interference=document.interference,
        results=results,
        warnings=document.warnings,
        finished=True,
    )


def save_sweep(store: Store, id: str, points: Sequence[MeasuredPoint], *, ended: bool = True, **fields: Any) -> Path:
    """Save the log of a sweep or overhead with these points and fields of its header, and return its path."""
    path = store.log_path(id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sweep_log_of(id, points, ended=ended, **fields))
    return path


def sweep_log_of(id: str, points: Sequence[MeasuredPoint], *, ended: bool = True, **fields: Any) -> bytes:
    """Return the log of a sweep or overhead whose studies have these values of its axes; the prefix is its command."""
    header, *_ = events_of(points[0][1])
    axes = {axis: [*dict.fromkeys(values[axis] for values, _ in points)] for axis in points[0][0]}
    sweep = {"id": id, "axes": axes, "command": id.partition("-")[0], "usable_threads": 2} | fields
    events: list[AnyEvent] = [msgspec.structs.replace(header, **sweep)]
    measured: list[AnyEvent] = []
    for number, (values, document) in enumerate(points):
        own = [msgspec.structs.replace(event, point=number) for event in events_of(document)[1:]]
        first = next((n for n, event in enumerate(own) if isinstance(event, ProcessStarted)), len(own))
        started = PointStarted(point=number, parameters=values, study=_study(document))
        events += [started, *own[:first]]
        measured += own[first:]
    events += measured
    if ended:
        events.append(sweep_end(events, "finished", derive_sweep(events)))
    return b"".join(map(encode_line, events))


def log_of(document: StudyDocument) -> bytes:
    """Return the log of a study."""
    return b"".join(map(encode_line, events_of(document)))


def events_of(document: StudyDocument) -> list[AnyEvent]:
    """Return the events of a study; warnings that `derive` adds itself have none."""
    events = [*_events(document)]
    again = derive(events)
    known = {one.configuration: one.warnings for one in again.results} | {None: again.warnings}
    texts = [(one.configuration, one.warnings) for one in document.results]
    warned = [
        Warned(text=text, configuration=name)
        for name, given in [(None, document.warnings), *texts]
        for text in given
        if text not in known[name]
    ]
    end = events.pop()
    ended = msgspec.structs.replace(end, **printed_results(again)) if isinstance(end, StudyEnded) else end
    return [*events, *warned, ended]


def _events(document: StudyDocument) -> Iterator[AnyEvent]:
    host = msgspec.structs.replace(document.host, idle_wait_seconds=0.0, busiest_programs=[])
    yield Header(
        id=document.id,
        created=document.created,
        polybench=document.polybench,
        argv=document.argv,
        host=host,
        study=_study(document),
        title=document.title,
        tags=document.tags,
        published=document.published,
        anonymous=is_anonymized(document.host),
    )
    yield SettingsChosen(
        settings=msgspec.structs.replace(
            document.settings, baseline=None, prices={}, rounds_per_process=None, steps_per_round=None
        ),
        steps_in_epoch=_steps_in_epoch(document),
        configurations=[*map(_planned, document.results)],
    )
    yield from _groups(document.results)
    for result in document.results:
        yield from _before_timing(result)
    yield from _process_runs(document)
    for result in document.results:
        yield from _after_timing(result)
    yield from _phases(document)
    yield from _end(document)


def _study(document: StudyDocument) -> str:
    """Return the study, with what `derive` reads from it as in the settings and results."""
    settings, study = document.settings, stored_study(document.study, document.id)
    fields: dict[str, Any] = {"malloc": settings.malloc, "epochs": settings.epochs}
    with contextlib.suppress(BadInput):  # only its settings have the name of an unknown network
        fields["model"] = find_model(settings.model).name
    if settings.baseline != (study.baseline or DEFAULT_BASELINE):
        fields["baseline"] = settings.baseline
    if settings.prices != merge_prices(study.prices, settings.threads):
        fields["prices"] = settings.prices
    for result in document.results:
        if result.time_to_accuracy is not None:
            fields["target_accuracy"] = result.time_to_accuracy.accuracy
        if result.time_to_loss is not None:
            fields["target_loss"] = result.time_to_loss.loss
    changed = {name: value for name, value in fields.items() if value not in (None, getattr(study, name))}
    return tomli_w.dumps(tomllib.loads(document.study) | changed) if changed else document.study


def _steps_in_epoch(document: StudyDocument) -> int | None:
    epochs = [one for one in document.results if one.step_time and one.epoch_seconds and not one.trainings]
    return max(1, round((epochs[0].epoch_seconds or 0.0) / epochs[0].step_seconds)) if epochs else None


def _planned(result: Result) -> PlannedConfiguration:
    name, _, repeat = result.configuration.partition("#")
    parts = name.split("/")
    return PlannedConfiguration(
        configuration=Configuration(
            result.engine,
            tuple(result.variant.split("+")) if result.variant else (),
            result.device,
            repeat=int(repeat or 1),
            precision=next((one for one in ("fp32", "tf32", "bf16") if one in parts), None),  # type: ignore[arg-type]
            environment=result.environment,
            replicas=result.workload.replicas if f"{result.workload.replicas}x" in parts else 1,
        ),
        workload=result.workload,
        caveat=result.caveat,
        world_size=result.world_size,
        env_vars=result.versions.get("environment", {}),
        inherited_env_vars=result.versions.get("inherited", {}),
    )


def _groups(results: Sequence[Result]) -> Iterator[GroupsChosen]:
    """Yield the groups of a study in which not all configurations were measured side by side."""
    alone = [one.configuration for one in results if one.vs_baseline and not one.vs_baseline.side_by_side]
    if alone:
        others = [one.configuration for one in results if one.configuration not in alone]
        yield GroupsChosen(groups=[others, *([name] for name in alone)])


def _before_timing(result: Result) -> Iterator[AnyEvent]:
    name = result.configuration
    if result.versions or result.program:
        yield EngineLoaded(
            configuration=name,
            versions=library_versions(result.versions),
            build=result.versions.get("build", {}),
            program=result.program,
            code_sha256=result.code_fingerprint,
        )
    if result.parity != UNCHECKED:
        yield ParityChecked(configuration=name, parity=result.parity)


def _process_runs(document: StudyDocument) -> Iterator[AnyEvent]:
    settings = document.settings
    block = None
    if settings.rounds_per_process is not None and settings.steps_per_round is not None:
        block = TimingBlocks(settings.steps_per_round, settings.rounds_per_process)
    budget = RoundBudget(
        steps_per_round=None, rounds_per_process=None, process_runs_left=0, seconds_left=0.0, block=block
    )
    runs = [len(one.nested_step_times) for one in document.results]
    count = max([*runs, *(one.process + 1 for one in document.interference)], default=0)
    waits = {"idle_wait_seconds": document.host.idle_wait_seconds, "busiest_programs": document.host.busiest_programs}
    for process in range(count):
        yield ProcessStarted(process=process)
        for result in document.results:
            if process == 0:
                yield from _startup(result)
            yield from _blocks(result, process)
        for load in document.interference:
            if load.process == process:
                yield RoundMeasured(load=load, **waits)
        yield ProcessEnded(process=process, budgets=[budget])


def _startup(result: Result) -> Iterator[WorkerStarted]:
    if result.startup is not None or result.losses or result.step_times is not None:
        yield WorkerStarted(
            configuration=result.configuration,
            process=0,
            startup=result.startup,
            resolution=result.step_times.resolution if result.step_times else "step",
            losses=[*result.losses],
        )


def _blocks(result: Result, process: int) -> Iterator[BlockTimed]:
    if result.step_times is None or process >= len(result.step_times.values):
        return
    steps_per_value, values = result.step_times.steps_per_value, result.step_times.values
    rounds = [(number, row) for number, process_run in enumerate(values) for row in enumerate(process_run)]
    steps = sum(len(seconds) for _, (_, seconds) in rounds) * steps_per_value
    for number, seconds in enumerate(values[process]):
        counted = _counters(result, process, number, sum(seconds) * steps_per_value)
        wait = result.pipeline and result.pipeline.data_wait_seconds_per_step
        yield BlockTimed(
            configuration=result.configuration,
            process=process,
            round=number,
            step_seconds=seconds,
            steps_per_value=steps_per_value,
            peak_rss_bytes=result.memory.peak_rss_bytes or 0,
            gc=_gc(result, steps, len(rounds), is_first=process == number == 0),
            data_wait_seconds=None if wait is None else wait * steps / len(rounds),
            call_overhead_seconds=result.python_call_overhead_seconds,
            counters=counted,
            usage=_usage(result, counted),
        )


def _counters(result: Result, process: int, number: int, seconds: float) -> BlockCounters:
    """Return the counters of a timing block; without them, nothing else was running."""
    counted = result.interference.blocks
    if process < len(counted) and number < len(counted[process]):
        return counted[process][number]
    return BlockCounters(seconds, seconds, 0.0, 0.0)


def _gc(result: Result, steps: int, blocks: int, *, is_first: bool) -> GcStats | None:
    if result.gc.seconds_per_step is None:
        return None
    return GcStats(result.gc.seconds_per_step * steps / blocks, (result.gc.full_collections or 0) if is_first else 0)


def _usage(result: Result, counters: BlockCounters) -> BlockUsage | None:
    used, source = result.utilization, result.energy.source or ""
    if used.cores_used is None:
        return None
    wall = counters.wall_seconds
    usage = BlockUsage(wall, used.cores_used * wall)
    if used.power is not None and source.startswith("RAPL "):
        first, *others = source.removeprefix("RAPL ").split("+")
        usage.package_joules = {first: used.power * wall} | dict.fromkeys(others, 0.0)
    if result.device != "cpu":
        joules = used.power * wall if used.power is not None and "counter" in source else None
        usage.gpu = GpuUsage(wall, joules, [_gpu_sample(result)])
    return usage


def _gpu_sample(result: Result) -> GpuSample:
    used, memory = result.utilization, result.memory
    clocks, names = used.clocks or {}, used.throttle_reasons
    by_process = memory.device_nvml_source is not None and "by process" in memory.device_nvml_source
    return GpuSample(
        gpu_percent=used.gpu_percent,
        power=used.power,
        sm_clock=clocks.get("sm"),
        memory_clock=clocks.get("memory"),
        temperature=used.temperature,
        throttle_reasons=None
        if names is None
        else sum(bit for bit, name in THROTTLE_REASON_NAMES.items() if name in names),
        memory_bytes=memory.device_nvml_bytes if by_process else None,
    )


def _after_timing(result: Result) -> Iterator[AnyEvent]:
    name = result.configuration
    if result.memory != Memory():
        freed = result.memory.device_nvml_bytes if result.device != "cpu" else None
        yield MemoryMeasured(configuration=name, memory=result.memory, gpu_bytes_freed=freed)
    if result.allocations != Allocations():
        counted = result.allocations
        native = counted.native and msgspec.structs.replace(counted.native, ratio_to_baseline=None)
        yield AllocationsCounted(configuration=name, host=counted.host, device=counted.device, native=native)
    if (pipeline := result.pipeline) and pipeline.pipeline_items_per_second and pipeline.training_items_per_second:
        size = result.workload.batch_size
        yield PipelineTimed(
            configuration=name,
            pipeline_seconds=size / pipeline.pipeline_items_per_second,
            training_seconds=size / pipeline.training_items_per_second,
        )
    if (shared := result.communication) is not None:
        whole = shared.seconds_per_step / shared.fraction
        yield AllreduceTimed(configuration=name, with_seconds=whole, without_seconds=whole - shared.seconds_per_step)
    if result.peak is not None:
        yield PeaksUsed(configuration=name, peaks=[*_peaks(result.peak, result)])
    for training in result.trainings:
        for number, epoch in enumerate(training.epochs):
            yield EpochTrained(configuration=name, seed=training.seed, number=number, epoch=epoch)
    if result.status in ("failed", "unavailable"):
        yield Failed(
            configuration=name,
            status=result.status,  # type: ignore[arg-type]  # checked above
            reason=result.reason,
            hint=result.hint,
            log_path=result.log_path,
        )


def _peaks(peak: PeakComparison, result: Result) -> Iterator[PeakMeasurement]:
    shape, _, rest = peak.source.partition(", ")
    conditions, _, day = rest.partition("; polybench peak, ")
    engine, _, _ = conditions.partition(" on ")
    values = {
        "gemm": peak.flops_per_second,
        "convolution": peak.convolution_flops_per_second,
        "memory_bandwidth": peak.bytes_per_second,
    }
    for kind, value in values.items():
        if value is not None:
            yield PeakMeasurement(
                device=result.device,
                precision=result.workload.precision,
                threads=result.workload.threads,
                kind=kind,  # type: ignore[arg-type]
                value=value,
                unit="B/s" if kind == "memory_bandwidth" else "FLOP/s",
                engine=engine,
                shape=shape,
                ci95=None,
                drift=None,
                cpu_contention=0.0,
                measured_at=day,
            )


def _phases(document: StudyDocument) -> Iterator[PhaseEnded]:
    if document.phase_seconds is not None:
        for phase, seconds in msgspec.structs.asdict(document.phase_seconds).items():
            if isinstance(seconds, list):
                for process, one in enumerate(seconds):
                    yield PhaseEnded(phase=phase, process=process, seconds=one)
            else:
                yield PhaseEnded(phase=phase, seconds=seconds)


def _end(document: StudyDocument) -> Iterator[AnyEvent]:
    for one in document.resumed:
        yield StudyResumed(resumed_at=one.resumed_at, processes=one.processes, trainings=one.trainings)
    if document.finished is False:
        return
    stopped = [one for one in document.results if one.status == "interrupted"]
    yield StudyEnded(
        outcome="interrupted" if stopped else "finished",
        polybench=document.polybench,
        hint=stopped[0].hint if stopped else None,
        idle_wait_seconds=document.host.idle_wait_seconds,
        busiest_programs=document.host.busiest_programs,
    )
