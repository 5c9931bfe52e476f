"""Re-measurement of timing blocks, and the measurement that counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polybench.machine.load import IdleWait
from polybench.planning.schedule import RoundBudget
from polybench.protocol.calls import BlockMeasured, Request
from polybench.runner import process_runs
from polybench.runner.process_runs import WholeSteps
from polybench.schema.options import Study
from polybench.schema.resources import BlockCounters
from tests.factories import run_of

SECONDS = 1.0


class Worker:
    """A worker whose n-th block takes n seconds per step."""

    pid = 1

    def __init__(self) -> None:
        self.requests = 0

    def request(self, request: Request[BlockMeasured], timeout: float) -> BlockMeasured:
        self.requests += 1
        return BlockMeasured([float(self.requests)] * request.arguments.steps, 1, 0, None, None)


@pytest.mark.parametrize(
    ("waited", "budget", "requests", "counts", "affected"),
    [
        pytest.param([0.0], 10.0, 1, 1, False, id="a block without interference is measured once"),
        pytest.param([0.5, 0.4, 0.0], 10.0, 3, 3, False, id="until it has no interference"),
        pytest.param([0.5, 0.6, 0.2, 0.3], 10.0, 4, 3, True, id="the least interference counts, even if slow"),
        pytest.param([0.5, 0.4], 1.5, 2, 2, True, id="until the budget is spent"),
        pytest.param([0.5], 0.5, 1, 1, True, id="not without a budget"),
    ],
)
def test_a_block_with_interference_is_measured_again(
    waited: list[float], budget: float, requests: int, counts: int, affected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = iter(BlockCounters(SECONDS, 2.0, one, 0.0, one, affected=one > 0) for one in waited)
    monkeypatch.setattr(process_runs, "BlockMeter", lambda *_: SimpleNamespace(stop=lambda: next(counters)))
    study = Study()
    state: Any = SimpleNamespace(
        plan=SimpleNamespace(study=study), observer=None, idle_wait=IdleWait(0.0, print, sleep=lambda _: None)
    )
    steps, worker, run = WholeSteps(), Worker(), run_of("fake")
    round_budget = RoundBudget.of(study)
    round_budget.spare_seconds = budget
    run.start_process_run()
    steps.start(state)
    steps.build(run, worker)  # type: ignore[arg-type]
    steps.measure(run, worker, round_budget, 2)  # type: ignore[arg-type]
    ((measured,),), ((kept,),) = run.step_times, run.block_counters
    assert [[attempt.attempt for attempt in one] for one in run.blocks[0]] == [[*range(requests)]]
    assert (worker.requests, measured) == (requests, [float(counts)] * 2)
    assert (kept.reruns, kept.affected) == (requests - 1, affected)
    assert round_budget.spare_seconds == budget - (requests - 1) * SECONDS
