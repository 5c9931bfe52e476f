"""What every engine's input pipeline must do: checks for `tests.engines.check`."""

from __future__ import annotations

CHECKS = {
    "the pipeline gives the batches of the study's decisions, whoever prepares them": """
build()
for workers, augment, shape in ((0, True, (3, 9, 14)), (2, False, (3, 9, 14)), (2, True, (3, 10, 150))):
    given, expected = stream(workers, augment, shape)
    engine.open_stream(given)
    for step in (0, 1, 2, 3, 0, 2):
        found, labels = engine.batch(step)
        assert found.dtype == np.float32 and found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected[step])
        assert labels.tolist() == given.labels[given.order[step]].tolist()
""",
    "in a pipeline, time splits into waiting and the rest": """
build()
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
""",
    "after a pipeline, batches can be preloaded again": """
build()
engine.open_stream(stream(1, False)[0])
engine.run_steps(0, 2)
engine.load(images, labels)
engine.reset()
engine.run_steps(0, 1)
assert engine.waited() is None
""",
}
