"""Collects the measurements of each configuration while a study runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from polybench.engines.job import EngineInfo, GcStats
from polybench.errors import EngineUnavailable
from polybench.machine.meters.observer import BlockUsage
from polybench.planning.plan import engine_spec
from polybench.planning.schedule import TimingBlocks
from polybench.protocol.calls import BlockMeasured, Loaded, PipelineAndTrainingTimed
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter
from polybench.protocol.loaded_code import Code, changed_names, describe_changes
from polybench.schema.metadata import PhaseSeconds, RoundInterference
from polybench.schema.options import Configuration, PositiveInt, Seconds
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.resources import Allocations, BlockCounters, Memory
from polybench.schema.result import Startup, Status, Training


@dataclass
class StudyRun:
    """Measurements of a study so far.

    Attributes:
        timing_blocks: of each group of configurations that is measured, once they are known.
        interference: one entry per round.
        memory_groups: names of the configurations that were measured side by side.
        phase_seconds: of the phases so far; None if the study was resumed.
        finished: whether no phase is left.
    """

    runs: Sequence[ConfigurationRun]
    warnings: Sequence[str]
    timing_blocks: Sequence[TimingBlocks]
    interference: Sequence[RoundInterference]
    memory_groups: Sequence[Sequence[str]]
    phase_seconds: PhaseSeconds | None
    finished: bool


@dataclass
class ConfigurationRun:
    """Measurements of one configuration so far.

    `step_times` are seconds as [process][round][step]; `block_counters` are [process][round].
    """

    configuration: Configuration
    env_vars: dict[str, str]
    """Environment variables that polybench sets for the workers."""
    inherited_env_vars: dict[str, str] = field(default_factory=dict)
    """Environment variables of the user that documents record."""
    unrecorded_env_hash: str = ""
    """Hash of the user's other variables that engines may read; no document has it."""
    interpreter: Interpreter = OWN_INTERPRETER
    status: Status = "ok"
    reason: str | None = None
    hint: str | None = None
    log_path: Path | None = None
    engine_info: EngineInfo | None = None
    parity: ParityCheck = UNCHECKED
    cached_worker_info: Loaded | None = None
    """The engine that passed a cached parity check, until a worker has confirmed that it is unchanged."""
    code: dict[str, str] = field(default_factory=dict)
    """The code that its last worker had loaded before its first step, see `protocol.loaded_code`."""
    later_code: dict[str, str] = field(default_factory=dict)
    """Files that the checked worker had loaded at the end of the parity check, in addition."""
    resolution: Literal["step", "block"] = "step"
    steps_per_value: PositiveInt = 1
    startups: list[Startup] = field(default_factory=list)
    step_times: list[list[Annotated[list[Seconds], Meta(min_length=1)]]] = field(default_factory=list)
    block_counters: list[list[BlockCounters]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak_rss_bytes: int | None = None
    gc_stats: list[GcStats] = field(default_factory=list)
    data_wait_seconds: float | None = None
    python_call_overhead_seconds: list[float] = field(default_factory=list)
    pipeline_and_training: PipelineAndTrainingTimed | None = None
    allreduce_times: tuple[float, float] | None = None
    """Seconds per step with and without the all-reduce of gradients."""
    usage: list[BlockUsage] = field(default_factory=list)
    gpu_bytes_freed: int | None = None
    memory: Memory = field(default_factory=Memory)
    allocations: Allocations = field(default_factory=Allocations)
    trainings: list[Training] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """Return True if another worker may be started for this configuration."""
        return self.status == "ok"

    @property
    def is_ranked(self) -> bool:
        """Return True if neither the run nor its parity check failed."""
        return self.status != "failed" and self.parity.status != "fail"

    def reuse_check(self, worker_info: Loaded, parity: ParityCheck, later_code: Code) -> None:
        """Use the parity check of an earlier study, in which the engine's worker was as described."""
        self.engine_info, self.parity, self.cached_worker_info = worker_info.info, parity, worker_info
        self.later_code = dict(later_code)

    def record_loaded(self, loaded: Loaded) -> None:
        """Record what a worker has loaded; discard a cached parity check of other code."""
        if self.cached_worker_info not in (None, loaded):
            self.discard_check()
        if changed := changed_names(self.code, loaded.code) if self.code else []:
            self.warnings.append(f"between two processes of this study, {describe_changes(changed)}")
        self.engine_info, self.code, self.cached_worker_info = loaded.info, loaded.code, None

    def discard_check(self) -> None:
        """Discard the parity check, because the engine has changed since."""
        self.engine_info, self.parity, self.cached_worker_info = None, UNCHECKED, None
        self.later_code = {}

    def mark_unavailable(self, missing: EngineUnavailable) -> None:
        """Record that this machine lacks the engine or the device."""
        self.status, self.reason = "unavailable", missing.reason
        self.hint = self.interpreter.adapt_hint(missing.hint, engine_spec(self.configuration))

    def mark_failed(self, error: Exception, log: Path) -> None:
        """Record the failure; measurements so far remain."""
        if self.cached_worker_info is not None:
            self.discard_check()  # no worker has confirmed that the engine is unchanged
        if isinstance(error, EngineUnavailable):
            self.mark_unavailable(error)
        else:
            self.status, self.reason, self.log_path = "failed", str(error), log
            self.hint = "see the worker's log for details"

    def start_process_run(self) -> None:
        """Start a new process in the measurements."""
        self.step_times.append([])
        self.block_counters.append([])

    def add_block(self, block: BlockMeasured, counters: BlockCounters, usage: BlockUsage | None) -> None:
        """Add a timing block of the current process, with its counters and resource usage."""
        self.step_times[-1].append(block.step_times)
        self.block_counters[-1].append(counters)
        self.steps_per_value = block.steps_per_value
        self.peak_rss_bytes = max(self.peak_rss_bytes or 0, block.peak_rss_bytes)
        if block.gc_stats is not None:
            self.gc_stats.append(block.gc_stats)
        if block.data_wait_seconds is not None:
            self.data_wait_seconds = (self.data_wait_seconds or 0.0) + block.data_wait_seconds
        if block.call_overhead_seconds is not None:
            self.python_call_overhead_seconds.append(block.call_overhead_seconds)
        if usage is not None:
            self.usage.append(usage)
