"""What every engine's input pipeline must do: checks for `tests.engines.lab`."""

from __future__ import annotations

import numpy as np

from tests.engines.lab import Lab, stream


def gives_the_batches_of_the_decisions_whoever_prepares_them(lab: Lab) -> None:
    lab.build()
    for workers, augmented, shape in ((0, True, (3, 9, 14)), (2, False, (3, 9, 14)), (2, True, (3, 10, 150))):
        given, expected = stream(workers, augmented, shape)
        lab.engine.open_stream(given)
        for step in (0, 1, 2, 3, 0, 2):
            found, labels = lab.engine.batch(step)
            assert found.dtype == np.float32
            assert found.flags.c_contiguous
            np.testing.assert_array_equal(found, expected[step])
            assert labels.tolist() == given.labels[given.order[step]].tolist()


def splits_time_into_waiting_and_the_rest(lab: Lab) -> None:
    lab.build()
    engine = lab.engine
    assert engine.waited() is None
    engine.open_stream(stream(1, True)[0])
    assert engine.sample_kind == "block"
    engine.reset()
    engine.run_steps(0, 1)
    before = engine.waited()
    seconds = engine.run_steps(1, 3)
    assert 0 < engine.waited() - before < seconds
    first, loss = engine.draw_batches(0, 1), engine.loss()
    assert first > 0
    engine.wait_until_idle()
    engine.reset()
    engine.run_steps(0, 4)  # the same again: drawing alone has trained nothing
    assert engine.loss() == loss


def gives_way_to_preloaded_batches(lab: Lab) -> None:
    lab.build()
    lab.engine.open_stream(stream(1, False)[0])
    lab.engine.run_steps(0, 2)
    lab.engine.load(lab.images, lab.labels)
    lab.engine.reset()
    lab.engine.run_steps(0, 1)
    assert lab.engine.waited() is None


CHECKS = (
    gives_the_batches_of_the_decisions_whoever_prepares_them,
    splits_time_into_waiting_and_the_rest,
    gives_way_to_preloaded_batches,
)
