"""One replicate: a fresh process for every cell, started side by side, measured in rounds, one at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeVar

import msgspec

from polybench.core.document.circumstances import RoundNoise
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.statistics import half_width, ratio
from polybench.machine.noise import NoiseMeter
from polybench.measuring.blocks import Blocks
from polybench.measuring.earlier_checks import CheckOutdated, confirm
from polybench.measuring.native import count_native
from polybench.measuring.state import StudyState
from polybench.measuring.workers import load, start_worker
from polybench.planning import schedule
from polybench.planning.pace import CALIBRATION_STEPS, COUNTED_STEPS, Block, Pace
from polybench.planning.plan import counts_natively_apart
from polybench.report.cell_record import CellRecord
from polybench.report.document import rounds_of
from polybench.wire.messages import (
    Count,
    Counted,
    Loaded,
    Measure,
    Measured,
    Prepared,
    Request,
    TimedSeparately,
    TimeSeparately,
)
from polybench.wire.process import WorkerProcess
from polybench.wire.replica_messages import ExchangeTimed, TimeExchange

A = TypeVar("A", bound=msgspec.Struct)

Team = dict[str, tuple[CellRecord, WorkerProcess]]
"""Cell name -> its record and its live worker."""


class Replicate:
    """Measures one group of cells, once each a round.

    Args:
        state: of the study.
        group: the cells whose workers live at the same time.
        pace: of this group; its first replicate calibrates it.
        number: of the replicate, from 0.
        blocks: how a block is measured.
    """

    def __init__(
        self,
        state: StudyState,
        group: Sequence[CellRecord],
        pace: Pace,
        number: int,
        blocks: Blocks,
    ) -> None:
        self._state, self._group, self._pace = state, group, pace
        self._number, self._blocks = number, blocks
        self._study = state.plan.study
        self._timeout = self._study.timeout

    cost_of_a_step: ClassVar[float] = 1.0
    """What is measured with each timed step, in steps."""
    tells_startup: ClassVar[bool] = True

    def run(self, timed: Callable[[], None] | None = None) -> None:
        """Start, warm up, measure, count and close; failures go into the records, the others go on.

        Args:
            timed: called when nothing of it is timed any more, and native allocations are to be counted.
        """
        where = f"process {self._number + 1} of {self._study.processes}"
        self._state.progress.stage(f"{where}: starting {', '.join(r.cell.name for r in self._group)}")
        clock = self._state.clock
        with contextlib.ExitStack() as stack:
            with clock.part("starts"):
                team = stack.enter_context(self._team())
                self._warm_up(team)
            self._pace.start_replicate()
            self._blocks.patience.wait_until_quiet()
            with clock.part("rounds"):
                block = self._rounds(team, where)
            if self._number == 0 and block is not None:
                with clock.part("counting"):
                    self._count(team)
                    self._time_separately(team, block)
                    self._time_exchange(team, block)
            if self._is_last and not counts_natively_apart(self._study):
                if timed is not None:
                    timed()
                count_native(self._state, team.values())

    @property
    def _is_last(self) -> bool:
        return self._number == self._study.processes - 1

    def _rounds(self, team: Team, where: str) -> Block | None:
        """All rounds; None where every cell has failed before."""
        block = self._calibrate(team)
        done = 0
        while team and block is not None and self._pace.another_round(done):
            self._state.progress.stage(f"{where}: round {done + 1} of {block.rounds}")
            self._state.noise.append(self._round(team, block, done))
            self._state.tell()
            done += 1
            if self._enough_after(done):
                self._pace.enough_after(done)
        return block

    @contextlib.contextmanager
    def _team(self) -> Iterator[Team]:
        team: Team = {}
        with contextlib.ExitStack() as stack:
            for record in self._group:
                team[record.cell.name] = record, stack.enter_context(self._worker(record))
            yield team

    @contextlib.contextmanager
    def _worker(self, record: CellRecord) -> Iterator[WorkerProcess]:
        """A fresh worker; what its end sets free of a GPU's memory is what it held, whoever else is there."""
        # The first process starts as a user's own does, so its startup is the one to report.
        cold = self.tells_startup and self._number == 0
        with start_worker(record, self._state.logs, str(self._number), cold=cold) as worker:
            yield worker
            before = self._gpu_bytes(record)
        after = self._gpu_bytes(record)
        if before is not None and after is not None and before > after:
            record.gpu_bytes_freed = max(record.gpu_bytes_freed or 0, before - after)

    def _gpu_bytes(self, record: CellRecord) -> int | None:
        observer = self._blocks.observer
        return observer.gpu_bytes(record.cell.device) if observer else None

    def _warm_up(self, team: Team) -> None:
        """Raises CheckOutdated where a cell's check does not hold for what its worker has loaded."""
        outdated: list[CellRecord] = []

        def keep_probe(record: CellRecord, answer: Loaded) -> None:
            if not confirm(record, answer):
                outdated.append(record)
            record.probe = answer.probe

        self._ask_all(team, load, Loaded, keep_probe)
        if outdated:
            raise CheckOutdated
        self._ask_all(team, self._state.prepare, Prepared, _keep_startup)
        for record, _ in team.values():
            record.start_process()

    def _ask_all(
        self,
        team: Team,
        request_of: Callable[[CellRecord], Request],
        kind: type[A],
        keep: Callable[[CellRecord, A], None],
    ) -> None:
        """Every worker obeys side by side; one that fails leaves the team."""
        requests = {name: request_of(record) for name, (record, _) in team.items()}
        for name, (_, worker) in team.items():
            worker.send(requests[name])
        for name in list(team):
            record, worker = team[name]
            with self._failures_noted(team, name):
                keep(record, worker.receive(requests[name], kind, self._timeout))

    @contextlib.contextmanager
    def _failures_noted(self, team: Team, name: str) -> Iterator[None]:
        record, worker = team[name]
        try:
            yield
        except (CellFailed, Unavailable) as error:
            record.fail(error, worker.log)
            worker.kill()
            del team[name]

    def _calibrate(self, team: Team) -> Block | None:
        """A discarded block alone: a warm-up without neighbours, and the step time to pace by.

        None where every cell has failed.
        """
        steps_in_epoch = self._state.files.steps_in_epoch
        request, seconds = Measure(min(CALIBRATION_STEPS, steps_in_epoch)), []
        for name in list(team):
            _, worker = team[name]
            with self._failures_noted(team, name):
                answer = worker.ask(request, Measured, self._timeout)
                seconds.append(self.cost_of_a_step * min(answer.step_seconds))
        return self._pace.calibrate(seconds, steps_in_epoch) if seconds else None

    def _round(self, team: Team, block: Block, number: int) -> RoundNoise:
        meter = NoiseMeter()
        start, waited = time.monotonic(), self._blocks.patience.waited
        self._blocks.spare = spare = self._pace.spare(number)
        for name in schedule.order_of_round(list(team), self._study.seed, self._number, number):
            self._measure(team, name, block)
        repeats, waited = spare - self._blocks.spare, self._blocks.patience.waited - waited
        self._pace.spend(time.monotonic() - start - repeats - waited, repeats)
        return meter.stop(self._number, number)

    def _measure(self, team: Team, name: str, block: Block) -> None:
        record, worker = team[name]
        request = Measure(block.steps, self._study.handicaps.get(name, 0.0))
        on_gpus = [other.pid for its, other in team.values() if its.cell.device != "cpu"]
        with self._failures_noted(team, name):
            record.add_block(*self._blocks.measure(worker, request, record.cell.device, on_gpus))

    def _enough_after(self, done: int) -> bool:
        """Whether more rounds in each process would hardly narrow the final interval.

        Looked at in the first replicate only, after the rounds in `schedule.LOOKS`. Rounds only have to be
        small beside the differences between processes, so half the target is enough.
        """
        if self._number or not self._pace.adaptive or done not in schedule.LOOKS:
            return False
        samples = [rounds_of(record) for record in self._group if record.alive]
        widths = [half_width(ratio(samples[0], other)) for other in samples[1:]]
        return all(width <= self._study.target / 2 for width in widths)

    def _count(self, team: Team) -> None:
        """Memory and allocations, after everything that is timed in these processes."""
        if not self._study.metrics:
            return
        request = Count(min(COUNTED_STEPS, self._state.files.steps_in_epoch))
        for record, worker in team.values():
            try:
                answer = worker.ask(request, Counted, self._timeout)
            except (CellFailed, Unavailable) as error:
                record.warnings.append(f"memory and allocations could not be counted: {error}")
            else:
                record.memory, record.allocations = answer.memory, answer.allocations

    def _time_separately(self, team: Team, block: Block) -> None:
        """Pipeline and training, each alone: last, since batches are then preloaded."""
        if self._state.files.stream is None:
            return
        for record, worker in team.values():
            try:
                answer = worker.ask(TimeSeparately(block.steps), TimedSeparately, self._timeout)
            except (CellFailed, Unavailable) as error:
                record.warnings.append(f"pipeline and training could not be timed separately: {error}")
            else:
                record.timed_separately = answer

    def _time_exchange(self, team: Team, block: Block) -> None:
        """What replicas take to exchange their gradients."""
        for record, worker in team.values() if self._study.metrics else ():
            if record.cell.replicas == 1:
                continue
            try:
                record.exchange = worker.ask(TimeExchange(block.steps), ExchangeTimed, self._timeout)
            except (CellFailed, Unavailable) as error:
                record.warnings.append(f"the exchange of gradients could not be timed: {error}")


def _keep_startup(record: CellRecord, answer: Prepared) -> None:
    record.startups.append(answer.startup)
    record.sample_kind = answer.sample_kind
    record.losses = answer.losses
