"""Code that benchmarks share with a real study: its files, workers and requests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from polybench.data import synthetic
from polybench.machine.process_counters import KernelDelta, kernel_counts
from polybench.networks import find_model
from polybench.planning import shared_files
from polybench.planning.plan import Plan, engine_spec, resolve
from polybench.planning.schedule import WARM_UP_STEPS
from polybench.planning.shared_files import SharedFiles
from polybench.protocol import calls
from polybench.protocol.calls import Request
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Malloc, Study
from polybench.scripts.script_folder import write_inputs

TIMEOUT = 600.0
_CALIBRATION_STEPS = 5
"""Steps of the discarded block before the first round, as in a study."""


class Inputs(NamedTuple):
    """A planned study and its files; a plain program uses the same `data` and `start`."""

    plan: Plan
    files: SharedFiles
    data: Path
    start: Path
    scratch: Path

    def configuration(self, engine: str) -> Configuration:
        return next(
            configuration for configuration in self.plan.configurations if configuration.name == f"{engine}/cpu"
        )


@contextlib.contextmanager
def inputs(
    engines: tuple[str, ...],
    steps: int,
    model: str = "lenet",
    batch_size: int = 128,
    malloc: Malloc = "retain",
    threads: int | None = None,
) -> Iterator[Inputs]:
    """Prepare a network on the CPU, with synthetic images for blocks of `steps` timed steps.

    The images are written in CIFAR-10's format, because plain programs read that; tokens as `polybench export --train`
    writes them.
    """
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as folder:
        data, scratch, start = Path(folder) / "data", Path(folder) / "scratch", Path(folder) / "start.npz"
        data.mkdir()
        scratch.mkdir()
        taken = max(WARMUP_STEPS_PER_BLOCK + steps, WARM_UP_STEPS)
        tokens = find_model(model).input_kind != "image"
        if not tokens:
            _write_binary_batches(data, -(-taken * batch_size // 5))
        source = "synthetic" if tokens else str(data)
        study = Study(
            engines, ("cpu",), model=model, data=source, batch_size=batch_size, threads=threads, malloc=malloc
        )
        plan = resolve(study)
        files = shared_files.write(plan, scratch)
        if tokens:
            write_inputs(data, files.dataset, np.arange(len(files.dataset.labels)))
        command = [sys.executable, "-m", "polybench", "export", "--weights", "--model", model, "--data", source]
        command += ["--batch-size", str(batch_size), "--steps", str(taken), "--output", str(start)]
        subprocess.run(command, check=True, capture_output=True)
        yield Inputs(plan, files, data, start, scratch)


def _write_binary_batches(folder: Path, images_per_file: int) -> None:
    chunks = list(synthetic.image_chunks(5 * images_per_file, 0, "train"))
    images = np.concatenate([chunk.images for chunk in chunks]).reshape(5 * images_per_file, -1)
    labels = np.concatenate([chunk.labels for chunk in chunks])
    for number, records in enumerate(np.split(np.column_stack([labels, images]), 5), start=1):
        records.tofile(folder / f"data_batch_{number}.bin")


@contextlib.contextmanager
def warm_worker(
    given: Inputs, configuration: Configuration, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[WorkerProcess]:
    """Start a worker; load and warm it up like the first phase of a process run."""
    with warm_workers(given, [configuration], more) as workers:
        yield workers[configuration]


@contextlib.contextmanager
def warm_workers(
    given: Inputs, configurations: Sequence[Configuration], more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[dict[Configuration, WorkerProcess]]:
    """Start several workers at the same time; `more` are variables that replace those of a study."""
    study, threads = given.plan.study, given.plan.workload.threads
    with contextlib.ExitStack() as stack:
        workers = {}
        for configuration in configurations:
            environment = worker_environment(
                engine_spec(configuration), configuration.device, threads, configuration.variants, study.malloc
            )
            log = given.scratch / f"{configuration.engine}.log"
            workers[configuration] = stack.enter_context(WorkerProcess({**environment, **more}, log))
        _ask_all(workers, lambda configuration: calls.load(engine_spec(configuration).factory))
        weights, epoch = str(given.files.weights), given.files.epoch
        _ask_all(
            workers, lambda configuration: calls.prepare(given.plan.job(configuration), weights, epoch, WARM_UP_STEPS)
        )
        for worker in workers.values():
            measure(worker, _CALIBRATION_STEPS)
        yield workers


def _ask_all(
    workers: Mapping[Configuration, WorkerProcess], request_of: Callable[[Configuration], Request[Any]]
) -> None:
    for configuration, worker in workers.items():
        worker.send(request_of(configuration))
    for configuration, worker in workers.items():
        worker.receive(request_of(configuration), TIMEOUT)


T = TypeVar("T")


def watched(pid: int, block: Callable[[], T]) -> tuple[T, KernelDelta]:
    """Step times of a block in a live process, and the kernel's counters for that process."""
    before = kernel_counts(pid)
    given = block()
    after = kernel_counts(pid)
    assert before is not None, "the process is alive"
    assert after is not None, "the process has just answered"
    return given, after.delta(before)


def measure(worker: WorkerProcess, steps: int) -> list[float]:
    """Run one block like in a round; return seconds of its steps."""
    return worker.request(calls.measure_block(steps), TIMEOUT).step_seconds
