"""One replicate: a fresh process for every cell, started side by side, measured in rounds, one at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from polybench.core.document.circumstances import RoundNoise
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import COLD_START
from polybench.core.spec import Study
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.usage import BlockUsage
from polybench.machine.noise import NoiseMeter
from polybench.planning import schedule
from polybench.planning.pace import CALIBRATION_STEPS, COUNTED_STEPS, Pace
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import (
    Count,
    Counted,
    Load,
    Loaded,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Request,
    TimedSeparately,
    TimeSeparately,
)
from polybench.wire.process import WorkerProcess

Team = dict[str, tuple[CellRecord, WorkerProcess]]
"""Cell name -> its record and its live worker."""


class Replicate:
    """Measures one group of cells, once each a round; `observer` watches them, where there is one."""

    def __init__(
        self,
        records: Sequence[CellRecord],
        prepare: Callable[[CellRecord], Prepare],
        logs: Path,
        number: int,
        study: Study,
        observer: Observer | None,
    ) -> None:
        self._records = records
        self._prepare = prepare
        self._logs = logs
        self._number = number
        self._study = study
        self._timeout = study.timeout
        self._observer = observer

    def run(
        self,
        pace: Pace,
        share: float,
        narrow_enough: Callable[[], bool],
        on_round: Callable[[int], None],
        on_noise: Callable[[RoundNoise], None],
    ) -> None:
        """Start, warm up, measure, count and close; failures go into the records, the others go on.

        Args:
            pace: block length and rounds; the first replicate calibrates it.
            share: seconds that the rounds may take.
            narrow_enough: asked after the rounds in `schedule.LOOKS` of an adaptive first replicate.
            on_round: called before each round with its number from 0.
            on_noise: called after each round with what else the machine did.
        """
        with self._team() as team:
            steps_in_epoch = self._warm_up(team)
            self._calibrate(team, pace, share, steps_in_epoch)
            spent, done = 0.0, 0
            while team and pace.another_round(done, share, spent):
                on_round(done)
                start = time.monotonic()
                on_noise(self._round(team, pace, done))
                done += 1
                spent += (seconds := time.monotonic() - start)
                pace.spend(seconds)
                if self._number == 0 and pace.adaptive and done in schedule.LOOKS and narrow_enough():
                    pace.rounds = done
            if self._study.metrics and self._number == 0:
                self._count(team, steps_in_epoch)
            if self._number == 0:
                self._time_separately(team, pace)

    @contextlib.contextmanager
    def _team(self) -> Iterator[Team]:
        team: Team = {}
        with contextlib.ExitStack() as stack:
            for record in self._records:
                team[record.cell.name] = record, stack.enter_context(self._worker(record))
            yield team

    @contextlib.contextmanager
    def _worker(self, record: CellRecord) -> Iterator[WorkerProcess]:
        """A fresh worker; what its end sets free of a GPU's memory is what it held, whoever else is there."""
        log = self._logs / f"{record.cell.name.replace('/', '_')}.{self._number}.log"
        # The first process starts as a user's own does, so its startup is the one to report.
        environment = record.environment | ({} if self._number else {COLD_START: "yes"})
        with WorkerProcess(environment, log) as worker:
            yield worker
            before = self._gpu_bytes(record)
        after = self._gpu_bytes(record)
        if before is not None and after is not None and before > after:
            record.gpu_bytes_freed = max(record.gpu_bytes_freed or 0, before - after)

    def _gpu_bytes(self, record: CellRecord) -> int | None:
        return self._observer.gpu_bytes(record.cell.device) if self._observer else None

    def _warm_up(self, team: Team) -> int:
        self._ask_all(team, lambda record: Load(row(record.cell).factory), _keep_probe)
        prepares = {record.cell.name: self._prepare(record) for record in self._records}
        self._ask_all(team, lambda record: prepares[record.cell.name], _keep_startup)
        for record, _ in team.values():
            record.samples.append([])
        return next(iter(prepares.values())).steps_in_epoch

    def _ask_all(
        self,
        team: Team,
        request: Callable[[CellRecord], Request],
        keep: Callable[[CellRecord, object], None],
    ) -> None:
        """Every worker obeys side by side; one that fails leaves the team."""
        requests = {name: request(record) for name, (record, _) in team.items()}
        for name, (_, worker) in team.items():
            worker.send(requests[name])
        for name in list(team):
            record, worker = team[name]
            with self._failures_noted(team, name):
                keep(record, worker.receive(requests[name], self._timeout))

    @contextlib.contextmanager
    def _failures_noted(self, team: Team, name: str) -> Iterator[None]:
        record, worker = team[name]
        try:
            yield
        except (CellFailed, Unavailable) as error:
            record.fail(error, worker.log)
            worker.kill()
            del team[name]

    def _calibrate(self, team: Team, pace: Pace, share: float, steps_in_epoch: int) -> None:
        """A discarded block alone: a warm-up without neighbours, and the step time to pace by."""
        seconds = []
        for name in list(team):
            _, worker = team[name]
            with self._failures_noted(team, name):
                answer = worker.ask(Measure(min(CALIBRATION_STEPS, steps_in_epoch)), self._timeout)
                assert isinstance(answer, Measured)
                seconds.append(min(answer.step_seconds))
        if seconds:
            pace.calibrate(seconds, share, steps_in_epoch)

    def _round(self, team: Team, pace: Pace, number: int) -> RoundNoise:
        meter = NoiseMeter([worker.pid for _, worker in team.values()])
        for name in schedule.order_of_round(list(team), self._study.seed, self._number, number):
            self._measure(team, name, pace)
        return meter.stop(self._number, number)

    def _measure(self, team: Team, name: str, pace: Pace) -> None:
        record, worker = team[name]
        assert pace.steps is not None
        with self._failures_noted(team, name):
            request = Measure(pace.steps, self._study.handicaps.get(name, 0.0))
            with self._observed(team, name) as usage:
                answer = worker.ask(request, self._timeout)
            assert isinstance(answer, Measured)
            record.samples[-1].append(answer.step_seconds)
            record.steps_per_sample = answer.steps_per_sample
            record.peak_rss_bytes = max(record.peak_rss_bytes or 0, answer.peak_rss_bytes)
            if answer.collected is not None:
                record.collected.append(answer.collected)
            if answer.waited_seconds is not None:
                record.waited_seconds = (record.waited_seconds or 0.0) + answer.waited_seconds
            if usage is not None:
                record.usage.append(usage)

    def _observed(self, team: Team, name: str) -> contextlib.AbstractContextManager[BlockUsage | None]:
        if self._observer is None:
            return contextlib.nullcontext()
        record, worker = team[name]
        on_gpus = [other_worker.pid for other, other_worker in team.values() if other.cell.device != "cpu"]
        return self._observer.block(worker.pid, record.cell.device, on_gpus)

    def _count(self, team: Team, steps_in_epoch: int) -> None:
        """Memory and allocations, after everything that is timed in these processes."""
        for record, worker in team.values():
            try:
                answer = worker.ask(Count(min(COUNTED_STEPS, steps_in_epoch)), self._timeout)
            except (CellFailed, Unavailable) as error:
                record.warnings.append(f"memory and allocations could not be counted: {error}")
                continue
            assert isinstance(answer, Counted)
            record.memory, record.allocations = answer.memory, answer.allocations

    def _time_separately(self, team: Team, pace: Pace) -> None:
        """Pipeline and training, each alone: last, since batches are then preloaded."""
        for record, worker in team.values():
            if self._prepare(record).stream is None:
                continue
            assert pace.steps is not None
            try:
                answer = worker.ask(TimeSeparately(pace.steps), self._timeout)
            except (CellFailed, Unavailable) as error:
                record.warnings.append(f"pipeline and training could not be timed separately: {error}")
                continue
            assert isinstance(answer, TimedSeparately)
            record.timed_separately = answer


def _keep_probe(record: CellRecord, answer: object) -> None:
    assert isinstance(answer, Loaded)
    record.probe = answer.probe


def _keep_startup(record: CellRecord, answer: object) -> None:
    assert isinstance(answer, Prepared)
    record.startups.append(answer.startup)
    record.sample_kind = answer.sample_kind
    record.losses = answer.losses
