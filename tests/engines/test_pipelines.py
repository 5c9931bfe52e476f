"""Reading an input pipeline without training."""

from __future__ import annotations

from unittest.mock import patch

from polybench.engines.shared.batches import BufferedBatches
from tests.engines.engine_fixtures import EngineFixture, in_process_of, make_pipeline_input


@in_process_of("torch", "tf", "jax")
def test_draining_the_pipeline_reads_the_batches_of_the_steps(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.open_pipeline(make_pipeline_input(0, False)[0])
    read: list[int] = []
    with patch.object(BufferedBatches, "__getitem__", lambda _, step: read.append(step)):
        fixture.engine.drain_pipeline(2, 3)
    assert read == [2, 3, 0]
