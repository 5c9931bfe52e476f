"""Values of a result that follow from the measurements of its run; no two of these are alike, nor mean and median."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.data import Dataset
from polybench.data.batch_files import EpochFile
from polybench.engines.job import GcStats
from polybench.planning.plan import resolve
from polybench.planning.shared_files import SharedFiles
from polybench.protocol.calls import PipelineAndTrainingTimed
from polybench.results.document import DocumentHeader, build_study_document
from polybench.results.run_state import ConfigurationRun, StudyRun
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import Study
from polybench.schema.resources import GarbageCollection
from polybench.schema.result import Pipeline, Result, TimeToAccuracy, TimeToLoss, TrainedEpoch, Training
from tests.factories import typical_study

MEDIAN, MEAN = 0.010, 0.014
STEP_TIMES = [[[0.008, MEDIAN, 0.024]], [[0.008, MEDIAN, 0.024]]]
BATCH_SIZE, STEPS_IN_EPOCH, STEPS_PER_VALUE = 50, 7, 4


def result_of(options: dict[str, Any], **measurements: Any) -> Result:
    """Return the result of a configuration with STEP_TIMES, in a study with these options."""
    study = Study(("fake",), ("cpu",), batch_size=BATCH_SIZE, epochs=2, threads=2, data="synthetic")
    plan = resolve(msgspec.structs.replace(study, **options))
    run = ConfigurationRun(plan.configurations[0], {}, step_times=STEP_TIMES, steps_per_value=STEPS_PER_VALUE)
    for name, value in measurements.items():
        setattr(run, name, value)
    host, tool, empty = typical_study().host, typical_study().polybench, np.empty(0, np.uint8)
    header = DocumentHeader("20250101-000000-abcd", "2025-01-01T00:00:00Z", tool, [], StudyFileMetadata(), host)
    epoch = EpochFile("", "", STEPS_IN_EPOCH, plan.workload.batch_size, (1,))
    dataset = Dataset("synthetic", "", empty, empty, "0" * 64)
    files = SharedFiles(dataset, Path(), epoch, epoch, None, "1" * 64, "2" * 64)
    measured = StudyRun([run], [], [], [], [], None, True)
    (result,) = build_study_document(header, plan, files, measured, lambda *_: None).results
    return result


def training(seed: int, accuracy: float, test_loss: float, seconds: tuple[float, float] = (3.0, 4.0)) -> Training:
    """Return two epochs, the second of which ends with this accuracy and loss."""
    first, second = seconds
    epochs = [TrainedEpoch(first, [1.0], 2.3, 0.1, 2.4), TrainedEpoch(second, [1.0], 2.2, accuracy, test_loss)]
    return Training(seed, epochs)


def test_rates_and_epochs_are_those_of_the_mean_step() -> None:
    result = result_of({})
    assert result.step_time is not None
    assert (result.step_time.median, result.step_time.mean) == (pytest.approx(MEDIAN), pytest.approx(MEAN))
    assert result.items_per_second == pytest.approx(BATCH_SIZE / MEAN)
    assert result.epoch_seconds == pytest.approx(STEPS_IN_EPOCH * MEAN)
    assert result.tokens_per_second is None


def test_a_sequence_has_many_tokens() -> None:
    result = result_of({"model": "char-gpt"})
    assert result.tokens_per_second == pytest.approx(64 * BATCH_SIZE / MEAN)


def test_accuracy_and_loss_have_the_mean_and_the_sample_standard_deviation_over_seeds() -> None:
    trainings = [training(0, 0.5, 1.5), training(1, 0.6, 1.1), training(2, 0.4, 1.9)]
    result = result_of({}, trainings=trainings)
    assert (result.accuracy, result.accuracy_std) == (pytest.approx(0.5), pytest.approx(0.1))
    assert (result.test_loss, result.test_loss_std) == (pytest.approx(1.5), pytest.approx(0.4))


def test_the_time_to_a_target_is_the_median_over_seeds_if_all_reached_it() -> None:
    trainings = [training(0, 0.5, 1.1, (3, 4)), training(1, 0.6, 1.3, (3, 5)), training(2, 0.7, 1.0, (3, 9))]
    reached = result_of({"target_accuracy": 0.45}, trainings=trainings)
    assert reached.time_to_accuracy == TimeToAccuracy(0.45, 8.0, 3, 3)
    missed = result_of({"target_loss": 1.2}, trainings=trainings)
    assert missed.time_to_loss == TimeToLoss(1.2, None, 2, 3)


def test_waits_and_collections_are_those_of_a_step() -> None:
    steps = 6 * STEPS_PER_VALUE
    result = result_of(
        {"input": "pipeline", "loader_workers": 1},
        data_wait_seconds=0.003 * steps,
        pipeline_and_training=PipelineAndTrainingTimed(0.005, 0.02),
        gc_stats=[GcStats(0.001 * steps, 2), GcStats(0.003 * steps, 3)],
    )
    assert result.pipeline is not None
    assert result.pipeline == Pipeline(
        data_wait_seconds_per_step=pytest.approx(0.003),
        compute_seconds_per_step=pytest.approx(MEAN - 0.003),
        pipeline_items_per_second=pytest.approx(BATCH_SIZE / 0.005),
        training_items_per_second=pytest.approx(BATCH_SIZE / 0.02),
    )
    assert result.gc == GarbageCollection(pytest.approx(0.004), 5)
