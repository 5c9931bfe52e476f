"""What replicas take to exchange their gradients: the same steps with and without it, in turns."""

from __future__ import annotations

from polybench.core.spec import UNTIMED_STEPS
from polybench.engines.base import Engine
from polybench.worker.counted import start
from polybench.worker.timed import finite_loss

_TURNS = 3
"""The fastest one of each kind counts: disturbances only add."""


def exchange_seconds(engine: Engine, steps: int) -> tuple[float, float] | None:
    """Seconds of a step with the exchange, and without, at best; None where it cannot be left out.

    Args:
        engine: built, loaded and warm, in replicas.
        steps: how many a block.
    """
    start(engine)
    if engine.run_steps_apart(UNTIMED_STEPS, 1) is None:  # compiles what it needs, too
        return None
    turns = [(_block(engine, steps), _block_apart(engine, steps)) for _ in range(_TURNS)]
    with_exchange, without = (min(seconds) for seconds in zip(*turns, strict=True))
    return with_exchange, without


def _block(engine: Engine, steps: int) -> float:
    start(engine)
    seconds = engine.run_steps(UNTIMED_STEPS, steps)
    finite_loss(engine, f"after {UNTIMED_STEPS + steps} steps")
    return seconds / steps


def _block_apart(engine: Engine, steps: int) -> float:
    start(engine)
    seconds = engine.run_steps_apart(UNTIMED_STEPS, steps)
    assert seconds is not None
    return seconds / steps
