"""What has been learned of each cell so far, while a study runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polybench.core.document.identity import UNCHECKED, Parity
from polybench.core.document.resources import Allocations, BlockReading, Memory
from polybench.core.document.result import Status
from polybench.core.document.times import Startup
from polybench.core.document.training import Training
from polybench.core.errors import Unavailable
from polybench.core.job import Collected, Probe
from polybench.core.spec import Cell
from polybench.machine.meters.usage import BlockUsage
from polybench.planning.plan import row
from polybench.wire.interpreter import OWN, Interpreter
from polybench.wire.messages import Loaded, Measured, TimedSeparately
from polybench.wire.replica_messages import ExchangeTimed


@dataclass
class CellRecord:
    """One cell's growing record; `samples` is [process][round][sample] in seconds, `readings` is
    [process][round]."""

    cell: Cell
    environment: dict[str, str]
    """Set for its workers."""
    inherited: dict[str, str] = field(default_factory=dict)
    """What its workers have of the user's environment, as far as engines are known to read it."""
    python: Interpreter = OWN
    status: Status = "ok"
    reason: str | None = None
    remedy: str | None = None
    log: Path | None = None
    probe: Probe | None = None
    parity: Parity = UNCHECKED
    checked: Loaded | None = None
    """What passed a check that an earlier study has kept, until a worker has said that it is still that."""
    sample_kind: Literal["step", "block"] = "step"
    steps_per_sample: int = 1
    startups: list[Startup] = field(default_factory=list)
    samples: list[list[list[float]]] = field(default_factory=list)
    readings: list[list[BlockReading]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak_rss_bytes: int | None = None
    collected: list[Collected] = field(default_factory=list)
    waited_seconds: float | None = None
    call_seconds: list[float] = field(default_factory=list)
    timed_separately: TimedSeparately | None = None
    exchange: ExchangeTimed | None = None
    usage: list[BlockUsage] = field(default_factory=list)
    gpu_bytes_freed: int | None = None
    memory: Memory = field(default_factory=Memory)
    allocations: Allocations = field(default_factory=Allocations)
    trainings: list[Training] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether there is a point in starting another worker for it."""
        return self.status == "ok"

    @property
    def ranked(self) -> bool:
        """Whether it may be compared: not failed, and not known to compute something else."""
        return self.status != "failed" and self.parity.status != "fail"

    def forget_check(self) -> None:
        """Its engine is not what was checked."""
        self.probe, self.parity, self.checked = None, UNCHECKED, None

    def unavailable(self, missing: Unavailable) -> None:
        """Keep what this machine does not have."""
        self.status, self.reason = "unavailable", missing.reason
        self.remedy = self.python.remedy(missing.remedy, row(self.cell))

    def fail(self, error: Exception, log: Path) -> None:
        """Keep why this cell cannot go on; what it has measured stays."""
        if self.checked is not None:
            self.forget_check()  # nobody can say that it is still what was checked
        if isinstance(error, Unavailable):
            self.unavailable(error)
        else:
            self.status, self.reason, self.log = "failed", str(error), log
            self.remedy = "the worker's log has the details"

    def start_process(self) -> None:
        """What is measured from now on is another process's."""
        self.samples.append([])
        self.readings.append([])

    def add_block(self, block: Measured, reading: BlockReading, usage: BlockUsage | None) -> None:
        """Keep a block of the process that runs now, and what was seen of it from outside."""
        self.samples[-1].append(block.step_seconds)
        self.readings[-1].append(reading)
        self.steps_per_sample = block.steps_per_sample
        self.peak_rss_bytes = max(self.peak_rss_bytes or 0, block.peak_rss_bytes)
        if block.collected is not None:
            self.collected.append(block.collected)
        if block.waited_seconds is not None:
            self.waited_seconds = (self.waited_seconds or 0.0) + block.waited_seconds
        if block.call_seconds is not None:
            self.call_seconds.append(block.call_seconds)
        if usage is not None:
            self.usage.append(usage)
