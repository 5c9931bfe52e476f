"""Values of a result that follow from the measurements of its run; no two of these are alike, nor mean and median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from polybench.log import (
    AnyEvent,
    BlockTimed,
    EpochTrained,
    Header,
    MemoryMeasured,
    PipelineTimed,
    ProcessEnded,
    ProcessStarted,
    SettingsChosen,
    Warned,
    WorkerStarted,
)
from polybench.planning.plan import Plan, resolve
from polybench.results.document import derive, planned_configurations, study_toml
from polybench.schema.options import Study
from polybench.schema.resources import BlockCounters, GarbageCollection, GcStats, Interference
from polybench.schema.result import ColdStart, Pipeline, Result, TimeToAccuracy, TimeToLoss, TrainedEpoch
from tests.factories import measured, study, typical_study
from tests.log_of import events_of

NAME = "fake/cpu"
MEDIAN, MEAN = 0.010, 0.014
STEP_TIMES = [[[0.008, MEDIAN, 0.024]], [[0.008, MEDIAN, 0.024]]]
BATCH_SIZE, STEPS_IN_EPOCH, STEPS_PER_VALUE = 50, 7, 4


def result_of(options: dict[str, Any], *events: AnyEvent, gc: Sequence[GcStats | None] = (None, None)) -> Result:
    """Return the result of a configuration with STEP_TIMES, in a study with these options, after these events."""
    study = Study(("fake",), ("cpu",), batch_size=BATCH_SIZE, epochs=2, threads=2, data="synthetic")
    plan = resolve(msgspec.structs.replace(study, **options))
    (result,) = derive([*_settings(plan), *_blocks(gc), *events]).results
    return result


def _settings(plan: Plan) -> Iterator[AnyEvent]:
    made_up = typical_study()
    yield Header(
        id="20250101-000000-abcd",
        created="2025-01-01T00:00:00Z",
        polybench=made_up.polybench,
        argv=[],
        host=made_up.host,
        study=study_toml(plan.study),
    )
    yield SettingsChosen(
        settings=msgspec.structs.replace(made_up.settings, threads=plan.workload.threads),
        steps_in_epoch=STEPS_IN_EPOCH,
        configurations=planned_configurations(plan, "synthetic"),
    )


def _blocks(gc: Sequence[GcStats | None]) -> Iterator[AnyEvent]:
    """Yield two process runs of one round; a later attempt with more interference does not count."""
    for process, ((seconds,), stats) in enumerate(zip(STEP_TIMES, gc, strict=True)):
        yield ProcessStarted(process=process)
        for attempt, (waited, factor) in enumerate([(0.1, 1), (0.2, 100)]):
            yield BlockTimed(
                configuration=NAME,
                process=process,
                round=0,
                attempt=attempt,
                step_seconds=[factor * one for one in seconds],
                steps_per_value=STEPS_PER_VALUE,
                peak_rss_bytes=1,
                gc=stats,
                data_wait_seconds=0.003 * 3 * STEPS_PER_VALUE * factor,
                counters=BlockCounters(1.0, 1.0, waited, 0.0),
            )
        yield ProcessEnded(process=process, budgets=[])


def training(
    seed: int, accuracy: float, test_loss: float, seconds: tuple[float, float] = (3.0, 4.0)
) -> list[EpochTrained]:
    """Return two epochs, the second of which ends with this accuracy and loss, after another second one."""
    first, second = seconds
    epochs = [
        (0, TrainedEpoch(first, [1.0], 2.3, 0.1, 2.4)),
        (1, TrainedEpoch(100.0, [1.0], 2.2, 0.9, 0.9)),
        (1, TrainedEpoch(second, [1.0], 2.2, accuracy, test_loss)),
    ]
    return [EpochTrained(configuration=NAME, seed=seed, number=number, epoch=epoch) for number, epoch in epochs]


def test_rates_and_epochs_are_those_of_the_mean_step() -> None:
    result = result_of({})
    assert result.step_time is not None
    assert (result.step_time.median, result.step_time.mean) == (pytest.approx(MEDIAN), pytest.approx(MEAN))
    assert result.items_per_second == pytest.approx(BATCH_SIZE / MEAN)
    assert result.epoch_seconds == pytest.approx(STEPS_IN_EPOCH * MEAN)
    assert result.tokens_per_second is None


def test_a_warning_that_a_repeated_process_run_has_again_is_shown_once() -> None:
    again = [Warned(configuration=NAME, text=text) for text in ("slow", "float64", "slow")]
    assert result_of({}, *again).warnings == ["slow", "float64"]


def test_the_default_baseline_is_not_for_teaching_only() -> None:
    caveat = "step times leave out garbage collection"
    document = study(measured("flux+gc_off/cpu", 0.01, caveat=caveat), measured("jax/cpu", 0.02))
    alone = study(measured("flux+gc_off/cpu", 0.01, caveat=caveat))
    settings = msgspec.structs.replace(document.settings, baseline=None)
    found = [derive(events_of(msgspec.structs.replace(one, settings=settings))) for one in (document, alone)]
    assert [one.settings.baseline for one in found] == ["jax/cpu", "flux+gc_off/cpu"]


def test_a_sequence_has_many_tokens() -> None:
    result = result_of({"model": "char-gpt"})
    assert result.tokens_per_second == pytest.approx(64 * BATCH_SIZE / MEAN)


def test_accuracy_and_loss_have_the_mean_and_the_sample_standard_deviation_over_seeds() -> None:
    trainings = [*training(0, 0.5, 1.5), *training(1, 0.6, 1.1), *training(2, 0.4, 1.9)]
    result = result_of({}, *trainings)
    assert (result.accuracy, result.accuracy_std) == (pytest.approx(0.5), pytest.approx(0.1))
    assert (result.test_loss, result.test_loss_std) == (pytest.approx(1.5), pytest.approx(0.4))


def test_the_time_to_a_target_is_the_median_over_seeds_if_all_reached_it() -> None:
    trainings = [*training(0, 0.5, 1.1, (3, 4)), *training(1, 0.6, 1.3, (3, 5)), *training(2, 0.7, 1.0, (3, 9))]
    reached = result_of({"target_accuracy": 0.45}, *trainings)
    assert reached.time_to_accuracy == TimeToAccuracy(0.45, 8.0, 3, 3)
    missed = result_of({"target_loss": 1.2}, *trainings)
    assert missed.time_to_loss == TimeToLoss(1.2, None, 2, 3)


def test_waits_and_collections_are_those_of_a_step() -> None:
    steps = 6 * STEPS_PER_VALUE
    result = result_of(
        {"input": "pipeline", "loader_workers": 1},
        PipelineTimed(configuration=NAME, pipeline_seconds=0.005, training_seconds=0.02),
        gc=[GcStats(0.001 * steps, 2), GcStats(0.003 * steps, 3)],
    )
    assert result.pipeline is not None
    assert result.pipeline == Pipeline(
        data_wait_seconds_per_step=pytest.approx(0.003),
        compute_seconds_per_step=pytest.approx(MEAN - 0.003),
        pipeline_items_per_second=pytest.approx(BATCH_SIZE / 0.005),
        training_items_per_second=pytest.approx(BATCH_SIZE / 0.02),
    )
    assert result.gc == GarbageCollection(pytest.approx(0.004), 5)


def test_the_gpu_memory_is_the_largest_that_the_end_of_a_worker_freed() -> None:
    freed = [MemoryMeasured(configuration=NAME, gpu_bytes_freed=number) for number in (5, 9, 7)]
    assert result_of({}, *freed).memory.device_nvml_bytes == 9


def test_the_first_step_with_cached_code_is_that_of_later_processes() -> None:
    starts = [
        WorkerStarted(
            configuration=NAME,
            process=2,
            startup=ColdStart(0.1, 0.2, 0.3, 0.4, first, 0.01, detail={"cached_code": 1.0}),
            resolution="step",
        )
        for first in (9.0, 1.0)
    ]
    startup = result_of({}, *starts).startup
    assert startup is not None
    assert startup.first_step_seconds == 9.0
    assert startup.detail["first_step_with_cached_code_seconds"] == 1.0


def test_further_attempts_at_a_timing_block_count_whether_they_were_saved_or_not() -> None:
    counters = BlockCounters(1.0, 1.0, 0.1, 0.0, reruns=2)
    document = study(measured("torch/cpu", 0.01, interference=Interference(blocks=[[counters]])))
    events = events_of(document)
    place = next(number for number, event in enumerate(events) if isinstance(event, BlockTimed))
    block = events[place]
    assert isinstance(block, BlockTimed)
    louder = msgspec.structs.replace(block, attempt=1, counters=BlockCounters(1.0, 1.0, 0.9, 0.0))
    for attempts, expected in (([block], 2), ([block, louder], 3)):
        (result,) = derive([*events[:place], *attempts, *events[place + 1 :]]).results
        assert result.interference.blocks[0][0] == msgspec.structs.replace(counters, reruns=expected)
        assert result.interference.blocks_rerun == 1
