"""Requirements of several engines, as checks in their processes: the input pipeline, and a missing GPU."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.errors import EngineUnavailable
from tests.engines.engine_fixtures import EngineFixture, make_pipeline_input


def returns_augmented_batches_with_any_number_of_workers(fixture: EngineFixture) -> None:
    fixture.build()
    for workers, augmented, shape in ((0, True, (3, 9, 14)), (0, False, (3, 9, 14)), (2, True, (3, 10, 150))):
        source, expected = make_pipeline_input(workers, augmented, shape)
        fixture.engine.open_pipeline(source)
        for step in (0, 1, 2, 3, 0, 2):
            images, labels = fixture.engine.batch(step)
            assert images.dtype == np.float32
            assert images.flags.c_contiguous
            np.testing.assert_array_equal(images, expected[step])
            assert labels.tolist() == source.labels[source.order[step]].tolist()


def separates_data_wait_from_training_time(fixture: EngineFixture) -> None:
    fixture.build()
    engine = fixture.engine
    assert engine.data_wait_seconds() is None
    engine.open_pipeline(make_pipeline_input(1, True)[0])
    assert engine.timing_resolution == "block"
    engine.reset()
    engine.run_steps(0, 1)
    before = engine.data_wait_seconds()
    seconds = engine.run_steps(1, 3)
    assert 0 < engine.data_wait_seconds() - before < seconds
    first, loss = engine.drain_pipeline(0, 1), engine.loss()
    assert first > 0
    engine.wait_until_idle()
    engine.reset()
    engine.run_steps(0, 4)  # the same loss: draining the pipeline did not train
    assert engine.loss() == loss


def closes_when_batches_are_preloaded(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.open_pipeline(make_pipeline_input(1, False)[0])
    fixture.engine.run_steps(0, 2)
    fixture.engine.load(fixture.images, fixture.labels)
    fixture.engine.reset()
    fixture.engine.run_steps(0, 1)
    assert fixture.engine.data_wait_seconds() is None


def reports_a_missing_gpu_with_a_hint(fixture: EngineFixture) -> None:
    assert fixture.engine.probe().devices[0] == "cpu"
    with pytest.raises(EngineUnavailable) as missing:
        fixture.build(device="cuda:99")
    assert missing.value.reason
    assert missing.value.hint


CHECKS = (
    returns_augmented_batches_with_any_number_of_workers,
    separates_data_wait_from_training_time,
    closes_when_batches_are_preloaded,
    reports_a_missing_gpu_with_a_hint,
)
