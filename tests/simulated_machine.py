"""Simulated machines with a known truth: a virtual clock and scripted workers, driven by the real program.

A `Machine` has effects that the statistics must withstand. A `Script` has the cost of an engine on it. From both, the
real runner, timing loop and statistics make the document of a study, which `measure` returns:

    machine = Machine(seed=1, bursts=0.1)
    slow = Script(0.020, pause_interval=40, pause_seconds=0.096)
    document = machine.measure({"torch": Script(0.020), "tf": slow}, processes=5)
    low, high = document.result("tf/cpu").step_time.ci95
    assert low <= machine.mean_seconds(slow) <= high

Engines are names of the table of engines, which are never loaded: a name is repeated with `#2`, as in a table
(`torch`, `torch#2`). Only processes, the data and the clock are replaced, so a study takes some 20 ms. Several
`measure` calls of one machine follow each other on its clock and draw new study effects. `measure_points` returns the
studies of a sweep. For layers or anything else that runs studies, call the program within `machine.simulate(scripts)`.
Everything follows from `seed`.

Effects are relative: standard deviations of logarithms, or shares.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import msgspec
import numpy as np

from polybench.data import Dataset
from polybench.data.batch_files import EpochFile
from polybench.engines.fake.engine import FakeEngine
from polybench.engines.job import EngineInfo, Job
from polybench.experiments import layers, peak, sweep
from polybench.experiments.sweep import run_sweep
from polybench.log import Header
from polybench.machine import interference, load
from polybench.machine.load import IdleWait, MachineCounters
from polybench.machine.memory import read_rss
from polybench.machine.process_counters import KernelCounts, ThreadCounts
from polybench.networks.timed_layers import split_layers
from polybench.planning import shared_files
from polybench.planning.grid import SweepSpec
from polybench.planning.shared_files import SharedFiles
from polybench.protocol.calls import AnswerT, Loaded, NumpyTimes, Prepared, Request, RequestFailed
from polybench.results.sweep import MeasuredPoint
from polybench.run import run_study
from polybench.runner import cold_start, prepare, process_runs, progress, session, training, workers
from polybench.runner.cold_start import Program, Started
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.progress import NullProgress
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import Study
from polybench.schema.resources import GcStats
from polybench.schema.result import Startup
from polybench.schema.study import StudyDocument
from polybench.worker import handler, timing_loop
from polybench.worker import layers as worker_layers

IMAGES = 50_000
"""Images of an epoch, which are never read."""

THREADS = 2
_BURST_SECONDS = 1.0
_BURST_FACTOR = 2.0
_SLOW_FACTOR = 1.2
_OUTLIER_SHARE, _OUTLIER_FACTOR = 0.05, 1.5
_CORRELATED = 0.05  # spread of steps that are correlated
_JUMP_SECONDS = 60.0  # a jump happens within the first two of these, and throttling begins after one
_WARM_UP_STEPS = 20  # in which most of a warm-up passes
_DRIFT_SECONDS = 1.0  # the level of a drifting machine changes once a second
_DRAWS = 512


@dataclass(frozen=True)
class Script:
    """The truth about an engine.

    Attributes:
        seconds: an undisturbed step of a typical process.
        seconds_per_item: added for each item of a batch.
        pause_interval: steps between two pauses of the collector; 0 has none.
        pause_seconds: seconds of a pause.
        off_the_clock: whether the engine leaves pauses out of its step times, as `flux+gc_off` does.
        slow_processes: share of its processes that are a fifth slower, if the machine slows none.
        timing_resolution: "block" if steps can only be timed together.
        startup_seconds: import of the framework if no other worker starts meanwhile.
        first_step_seconds: compilation in the first step of a cold worker; others run cached code.
        program: what its workers say that they run.
        leak: bytes that each step leaves behind; None if no source counts the memory in use.
        cache: bytes that are allocated once, in a random step of the first 30.
    """

    seconds: float = 0.020
    seconds_per_item: float = 0.0
    pause_interval: int = 0
    pause_seconds: float = 0.0
    off_the_clock: bool = False
    slow_processes: float = 0.0
    timing_resolution: Literal["step", "block"] = "step"
    startup_seconds: float = 1.0
    first_step_seconds: float = 0.1
    program: str = ""
    leak: int | None = None
    cache: int = 0

    def step_seconds(self, batch_size: int) -> float:
        """Return the seconds of an undisturbed step without pauses."""
        return self.seconds + self.seconds_per_item * batch_size


@dataclass
class Machine:
    """A machine on which time is virtual.

    Attributes:
        seed: of everything random.
        process: spread of the level of each process.
        round: spread of the level of each timing block.
        slow_processes: share of processes that are a fifth slower.
        tail: mean of the exponential right tail of steps; one in twenty takes half as long again.
        tail_index: index of the Pareto law of these longer steps instead; 2 has no variance.
        autocorrelation: of successive steps, which then spread by 5 % more.
        study: spread of the level that each configuration has in each study.
        shared_study: spread of the level that all configurations share in each study.
        drift: spread of the machine's random walk over a minute.
        jump: by which all steps are longer from one moment of the first two minutes on.
        throttling: by which all steps are longer after a minute.
        warm_up: by which the first step of a process is longer; the excess falls by 63 % in 20 steps.
        bursts: share of the time in which another program doubles the time of steps, for a second at a time.
        visible_bursts: whether the kernel's counters show these bursts.
    """

    seed: int = 0
    process: float = 0.03
    round: float = 0.01
    slow_processes: float = 0.0
    tail: float = 0.02
    tail_index: float = 0.0
    autocorrelation: float = 0.0
    study: float = 0.0
    shared_study: float = 0.0
    drift: float = 0.0
    jump: float = 0.0
    throttling: float = 0.0
    warm_up: float = 0.0
    bursts: float = 0.0
    visible_bursts: bool = True
    now: float = field(default=0.0, init=False)
    own_cpu_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self._starting: list[SimulatedWorker] = []
        self._levels = [0.0]
        self._jump_at = self.rng.uniform(0, 2 * _JUMP_SECONDS) if self.jump else math.inf
        self._burst = (math.inf, math.inf) if not self.bursts else self._draw_burst(0.0)
        self._burst_seconds = 0.0  # in all bursts before the current one

    def slow_share(self, script: Script) -> float:
        """Return the share of an engine's processes that are a fifth slower."""
        return self.slow_processes or script.slow_processes

    def typical_seconds(self, script: Script, batch_size: int = 128) -> float:
        """Return the typical step in a quiet round: what `step_time.median` estimates."""
        slow = math.exp(self.slow_share(script) * math.log(_SLOW_FACTOR))
        return script.step_seconds(batch_size) * slow * _median_of_steps(self.tail)

    def mean_seconds(self, script: Script, batch_size: int = 128) -> float:
        """Return the mean of all steps in quiet rounds, with every pause: what `step_time.mean` estimates."""
        correlated = _CORRELATED if self.autocorrelation else 0.0
        variance = self.process**2 + self.round**2 + self.study**2 + self.shared_study**2 + correlated**2
        slow = 1 + self.slow_share(script) * (_SLOW_FACTOR - 1)
        longer = self.tail_index / (self.tail_index - 1) if self.tail_index else _OUTLIER_FACTOR
        steps = (1 + _OUTLIER_SHARE * (longer - 1)) / (1 - self.tail)
        pauses = script.pause_seconds / script.pause_interval if script.pause_interval else 0.0
        return script.step_seconds(batch_size) * math.exp(variance / 2) * slow * steps + (
            0.0 if script.off_the_clock else pauses
        )

    def measure(self, scripts: Mapping[str, Script], **fields: Any) -> StudyDocument:
        """Measure a study of these engines with the real runner; `fields` are those of `Study`."""
        with self.simulate(scripts):
            return run_study(study_of(scripts, **fields), NullProgress(), store=None, header=_header())

    def measure_points(
        self, scripts: Mapping[str, Script], axes: Mapping[str, Sequence[int]], **fields: Any
    ) -> list[MeasuredPoint]:
        """Measure a sweep of these engines with the real runner; `fields` are those of `Study`."""
        with self.simulate(scripts):
            outcome = run_sweep(SweepSpec(study_of(scripts, **fields), axes), NullProgress(), store=None)
        return outcome.points

    @contextlib.contextmanager
    def simulate(self, scripts: Mapping[str, Script]) -> Iterator[None]:
        """Replace processes, data and clock; scripts are those of `engine` or, for repeats, `engine#2`."""
        idle_wait = functools.partial(IdleWait, sleep=self.advance, read=self.counters, programs=_NoPrograms)
        virtual = SimpleNamespace(monotonic=lambda: self.now, perf_counter=lambda: self.now)
        own = _OwnScripts(self, scripts)
        replaced = [
            *((module, "start_worker", own.start_worker) for module in (workers, process_runs, training)),
            *((module, "time", virtual) for module in (process_runs, progress, timing_loop)),
            *((module, "gc", SimpleNamespace(collect=lambda: None)) for module in (timing_loop, worker_layers)),
            *((module, "read_counters", self.counters) for module in (load, interference)),
            (workers, "worker_environment", lambda *_: {}),
            (cold_start, "_write_programs", lambda _, runs: {one.configuration.name: _program(one) for one in runs}),
            (cold_start, "start_program", own.start_program),
            (interference, "cpu_seconds", own.cpu_seconds),
            (interference, "kernel_counts", own.kernel_counts),
            (interference, "seconds_per_fault", lambda: 0.0),
            (session, "IdleWait", idle_wait),
            (shared_files, "write", _shared_files),
            *((module, "exclusive_lock", lambda: contextlib.nullcontext(True)) for module in (prepare, sweep)),
            *((module, "new_header", _header) for module in (layers, peak, sweep)),
            *((module, "read_rss", lambda: _RSS) for module in (handler, timing_loop)),
            (timing_loop, "bytes_in_use", lambda engine: engine.bytes_in_use()),
            (os, "fsync", lambda _: None),
            (layers, "start_reference", lambda *_: contextlib.nullcontext(mock.Mock())),
            (peak, "WorkerProcess", lambda *_: contextlib.nullcontext(SimulatedNumpy(self))),
        ]  # fmt: skip
        with contextlib.ExitStack() as stack:
            for module, name, value in replaced:
                stack.enter_context(mock.patch.object(module, name, value))
            yield

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def level(self) -> float:
        """Return the log of what slows the machine down now: drift, a jump, throttling."""
        steady = self.jump * (self.now >= self._jump_at) + self.throttling * (self.now >= _JUMP_SECONDS)
        return math.log1p(steady) + self._drift_level()

    @property
    def has_one_level(self) -> bool:
        """False if a step has no single truth, because the machine changes during a study."""
        return not (self.drift or self.jump or self.throttling)

    def _drift_level(self) -> float:
        if not self.drift:
            return 0.0
        index = int(self.now / _DRIFT_SECONDS)
        while len(self._levels) <= index:
            walked = self.rng.normal(0, self.drift * math.sqrt(_DRIFT_SECONDS / 60), _DRAWS).cumsum()
            self._levels.extend((self._levels[-1] + walked).tolist())
        return self._levels[index]

    @property
    def mean_level(self) -> float:
        """The mean factor of the drift so far, by which steps were longer."""
        self.level()
        return fmean(map(math.exp, self._levels[: int(self.now / _DRIFT_SECONDS) + 1]))

    @property
    def in_burst(self) -> bool:
        """True while another program runs."""
        while self.now >= self._burst[1]:
            start, end = self._burst
            self._burst_seconds += end - start
            self._burst = self._draw_burst(end)
        return self.now >= self._burst[0]

    def _draw_burst(self, after: float) -> tuple[float, float]:
        start = after + self.rng.exponential(_BURST_SECONDS * (1 - self.bursts) / self.bursts)
        return start, start + _BURST_SECONDS

    def counters(self) -> MachineCounters:
        """Return the kernel's counters now."""
        current = self.now - self._burst[0] if self.in_burst else 0.0  # `in_burst` adds the bursts that have ended
        others = self._burst_seconds + current
        busy = self.own_cpu_seconds + (others if self.visible_bursts else 0.0)
        return MachineCounters(self.now, busy, 0.0, 0, self.own_cpu_seconds, None)

    def begin_starting(self, worker: SimulatedWorker) -> None:
        """Let a worker start beside those that are starting; together they take as long as one after the other."""
        self._starting.append(worker)
        together = sum(one.script.startup_seconds for one in self._starting)
        for one in self._starting:
            one.ready = self.now + together

    def end_starting(self, worker: SimulatedWorker) -> None:
        """Wait until a worker has started."""
        self.now = max(self.now, worker.ready)
        self._starting.remove(worker)


def study_of(scripts: Mapping[str, Script], **fields: Any) -> Study:
    """Return a study of these engines on the CPU, without parity check, starts of programs and counting passes."""
    engines = tuple(name.partition("#")[0] for name in scripts)
    defaults = {"devices": ("cpu",), "threads": THREADS, "parity": False, "metrics": False, "data": "synthetic"}
    defaults["cold_starts"] = 0
    return Study(engines=engines, **(defaults | fields))


class SimulatedEngine(FakeEngine):
    """Steps of a script on a machine. The virtual clock passes while they run."""

    def __init__(self, machine: Machine, script: Script, study_level: float, cold: bool) -> None:
        super().__init__()
        self._machine, self._script, self._rng = machine, script, machine.rng
        slow = math.log(_SLOW_FACTOR) * (self._rng.random() < machine.slow_share(script))
        self._process_level = study_level + self._rng.normal(0, machine.process) + slow
        self._round_level = 0.0
        self._until_pause = self._rng.uniform(0, script.pause_interval) if script.pause_interval else math.inf
        self._factors: list[float] = []
        self._correlated = self._rng.normal() if machine.autocorrelation else 0.0
        self._warm_steps = 0
        self._cached_after = int(self._rng.integers(30)) if script.cache else 0
        self._gc = GcStats(0.0, 0)
        self.is_compiled = not cold
        self.timing_resolution = script.timing_resolution
        self.cpu_seconds = self.cpu_wait_seconds = 0.0
        self.batch_size = 128

    def training_seconds(self, job: Job) -> float:
        return self._script.step_seconds(self.batch_size)

    def reset(self) -> None:
        super().reset()
        self._round_level = self._rng.normal(0, self._machine.round)

    def run_steps(self, first: int, n: int) -> float:
        seconds = sum(self._step() for _ in range(n))
        self._steps += n
        if not self.is_compiled:
            self.is_compiled = True
            self._pass(self._script.first_step_seconds)
            seconds += self._script.first_step_seconds
        return seconds

    def _simulate(self, seconds: float, n: int) -> float:
        return sum(self._run(seconds) for _ in range(n))

    def _step(self) -> float:
        seconds = self._run(self._script.step_seconds(self.batch_size))
        self._until_pause -= 1
        if self._until_pause > 0:
            return seconds
        self._until_pause += self._script.pause_interval
        pause = self._script.pause_seconds
        self._pass(pause)
        if self._script.off_the_clock:
            return seconds
        self._gc = GcStats(self._gc.seconds + pause, self._gc.full_collections + 1)
        return seconds + pause

    def _run(self, seconds: float) -> float:
        """Return the time that this work takes now, which passes."""
        if not self._factors:
            self._factors = self._draw_factors()
        level = self._process_level + self._round_level + self._machine.level()
        warm_up = 1 + self._machine.warm_up * math.exp(-self._warm_steps / _WARM_UP_STEPS)
        needed = seconds * math.exp(level) * warm_up * self._factors.pop()
        self._warm_steps += 1
        waited = (_BURST_FACTOR - 1) * needed if self._machine.in_burst else 0.0
        self.cpu_wait_seconds += waited if self._machine.visible_bursts else 0.0
        self._pass(needed, waited)
        return needed + waited

    def _draw_factors(self) -> list[float]:
        machine = self._machine
        tail = self._rng.exponential(machine.tail, _DRAWS)
        longer = 1 + self._rng.pareto(machine.tail_index, _DRAWS) if machine.tail_index else _OUTLIER_FACTOR
        factors = np.exp(tail) * np.where(self._rng.random(_DRAWS) < _OUTLIER_SHARE, longer, 1.0)
        if machine.autocorrelation:
            new = math.sqrt(1 - machine.autocorrelation**2) * self._rng.normal(size=_DRAWS)
            last = self._correlated
            values = [last := one + machine.autocorrelation * last for one in new.tolist()]
            self._correlated = last
            factors *= np.exp(_CORRELATED * np.array(values))
        return factors.tolist()  # type: ignore[no-any-return]

    def _pass(self, needed: float, waited: float = 0.0) -> None:
        self._machine.now += needed + waited
        self.cpu_seconds += THREADS * needed
        self._machine.own_cpu_seconds += THREADS * needed

    def gc_stats(self) -> GcStats:
        return self._gc

    def bytes_in_use(self) -> int | None:
        """Return what the steps so far have left behind, and the cache."""
        script, steps = self._script, self._warm_steps
        return None if script.leak is None else steps * script.leak + script.cache * (steps > self._cached_after)


class SimulatedWorker(handler.Worker):
    """The real worker with a simulated engine, in place of a process. It loads no framework and no data."""

    def __init__(self, pid: int, machine: Machine, engine: SimulatedEngine, script: Script, log_path: Path) -> None:
        super().__init__()
        self.pid, self.log_path, self.script = pid, log_path, script
        self.ready = machine.now
        self._machine, self._simulated = machine, engine
        self._engine = self._simulated
        self._requests: list[Request[Any]] = []
        self._load_seconds = 0.0

    @property
    def simulated(self) -> SimulatedEngine:
        """The engine."""
        return self._simulated

    def load(self, factory: str, rank: object, program: object) -> Loaded:
        self._load_seconds = self.ready - self._sent
        return Loaded(EngineInfo({"simulated": "1"}, {}, ("cpu",)))

    def prepare(self, job: Any, weights: str, epoch: EpochFile, warmup_steps: int, pipeline: object) -> Prepared:
        self._job, self._simulated.batch_size = job, job.workload.batch_size
        self._simulated.build(job, {})
        cached = {"cached_code": 1.0} if self._simulated.is_compiled else {}
        first, second, *_ = [*(self._simulated.run_steps(step, 1) for step in range(max(2, warmup_steps)))]
        startup = Startup(0.05, self._load_seconds, 0.0, 0.0, first, second, cached)
        engine, program = self._simulated, self.script.program
        return Prepared(startup, engine.timing_resolution, False, engine.conventions(), [2.3], program)

    def build_layer_ops(self, weights: str, folder: str) -> None:
        nothing = np.empty(0)
        layers = [
            worker_layers.BuiltLayer(index, layer, self._simulated.build_layer_operations(layer, {}, nothing, nothing))
            for index, layer in enumerate(split_layers(self._job.model))
        ]
        self._operation_timer = worker_layers.OperationTimer(
            self._simulated,
            self._job,
            layers.__getitem__,
            [range(len(layers))],
            self._simulated.build_step_operations(),
        )

    def send(self, request: Request[Any]) -> None:
        self._sent = self._machine.now
        if request.call.name == "load":
            self._machine.begin_starting(self)
        self._requests.append(request)

    def receive(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        if request.call.name == "load":
            self._machine.end_starting(self)
        reply = self.handle(self._requests.pop(0))
        assert not isinstance(reply, RequestFailed), reply.reason
        return reply.value  # type: ignore[union-attr,no-any-return]

    def request(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        self.send(request)
        return self.receive(request, timeout)

    def kill(self) -> None: ...

    def __enter__(self) -> SimulatedWorker:
        return self

    def __exit__(self, *_: object) -> None: ...


class SimulatedNumpy:
    """Stands in for the process of NumPy: 10 GFLOP/s and 5 GB/s, each with a spread of 1 %."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def request(self, request: Request[NumpyTimes], timeout: float) -> NumpyTimes:
        kernels = request.arguments.kernels
        seconds = [*(2 * size**3 / 1e10 for size in kernels.sizes), 3 * (kernels.triad_bytes or 0) / 5e9]
        noise = self._machine.rng.lognormal(0, 0.01, len(seconds)).tolist()
        *products, triad = (one * factor for one, factor in zip(seconds, noise, strict=True))
        return NumpyTimes(products, triad)


class _OwnScripts:
    """Workers of the studies that run within one `simulate`."""

    def __init__(self, machine: Machine, scripts: Mapping[str, Script]) -> None:
        self._machine, self._scripts = machine, scripts
        self._workers: dict[int, SimulatedWorker] = {}
        self._levels: dict[Path, dict[str, float]] = {}
        self._starts = 0

    def start_worker(self, run: ConfigurationRun, logs: Path, name: str, *, cold: bool = False) -> SimulatedWorker:
        engine = run.configuration.name.replace(f"/{run.configuration.device}", "")
        levels = self._levels.setdefault(logs, {"": self._machine.rng.normal(0, self._machine.shared_study)})
        own = levels.setdefault(engine, self._machine.rng.normal(0, self._machine.study))
        script = self._scripts[engine]
        simulated = SimulatedEngine(self._machine, script, levels[""] + own, cold)
        worker = SimulatedWorker(len(self._workers), self._machine, simulated, script, logs / f"{name}.log")
        self._workers[worker.pid] = worker
        return worker

    def start_program(self, program: Program, *_: object) -> Started:
        """Start the program of an engine: half as long as a worker, and slower by a tenth from start to start."""
        script, self._starts = self._scripts[program.command[0]], self._starts + 1
        first, step = script.first_step_seconds, script.step_seconds(128)
        startup = Startup(0.02, script.startup_seconds / 2 * (1 + self._starts / 10), 0.1, 0.05, first + step, step)
        return Started(startup, [2.3, 2.2, 2.1])

    def cpu_seconds(self, pid: int) -> float:
        return self._workers[pid].simulated.cpu_seconds

    def kernel_counts(self, pid: int) -> KernelCounts:
        return KernelCounts(0, 0, {pid: ThreadCounts(0, 0, self._workers[pid].simulated.cpu_wait_seconds)})


_RSS = read_rss()


def _program(run: ConfigurationRun) -> Program:
    return Program([run.configuration.name.replace(f"/{run.configuration.device}", "")], Path())


class _NoPrograms:
    """Finds no busy program: the machine's other program has no name."""

    def busiest(self) -> list[Any]:
        return []


def _shared_files(plan: Any, scratch: Path) -> SharedFiles:
    """Describe an epoch that is never read."""
    batch_size, weights, empty = plan.workload.batch_size, scratch / "weights.npz", np.empty(0, np.uint8)
    weights.touch()
    epoch = EpochFile("", "", IMAGES // batch_size, batch_size, (1,))
    dataset = Dataset("synthetic", "simulated", empty, empty, "0" * 64)
    return SharedFiles(dataset, weights, epoch, epoch, None, "1" * 64, "2" * 64)


@functools.cache
def _this_header() -> Header:
    return prepare.new_header()


def _header(
    argv: Sequence[str] = (), study_file: StudyFileMetadata = NO_METADATA, *, anonymous: bool = False
) -> Header:
    """Return a header with a new ID: reading the real machine would take longer than a simulated study."""
    host = msgspec.structs.replace(_this_header().host)  # of its own: a study records its waits there
    own = {"argv": [] if anonymous else list(argv), "anonymous": anonymous, "host": host}
    own |= {"title": study_file.title, "tags": [*study_file.tags], "published": study_file.published}
    return msgspec.structs.replace(_this_header(), id=f"20250101-000000-{next(_IDS):04x}", **own)


_IDS = itertools.cycle(range(1 << 16))


@functools.cache
def _median_of_steps(tail: float) -> float:
    rng = np.random.default_rng(0)
    factors = np.exp(rng.exponential(tail, 400_001)) if tail else np.ones(400_001)
    return float(np.median(factors * np.where(rng.random(factors.size) < _OUTLIER_SHARE, _OUTLIER_FACTOR, 1.0)))


def repeat(machine: Machine, studies: int) -> Iterator[Machine]:
    """Iterate over machines that differ from this one by their seed only."""
    return (replace(machine, seed=1000 * machine.seed + number) for number in range(studies))
