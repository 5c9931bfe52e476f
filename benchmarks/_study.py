"""What the benchmarks share with a real study: its files, its workers, its way of asking them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from polybench.core.spec import UNTIMED_STEPS, Cell, Heap, Study
from polybench.data import synthetic
from polybench.machine.meters.kernel import KernelUse, kernel_counts
from polybench.plain import OF_TOKENS
from polybench.plain.folder import write_inputs
from polybench.planning import shared_files
from polybench.planning.pace import WARM_UP_STEPS
from polybench.planning.plan import Plan, resolve, row
from polybench.planning.shared_files import SharedFiles
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded, Measure, Measured, Prepare, Prepared, Request
from polybench.wire.process import WorkerProcess

TIMEOUT = 600.0
_CALIBRATION_STEPS = 5
"""Steps of the discarded block that a study, too, has before its first round."""


class Inputs(NamedTuple):
    """A planned study and its files; `data` and `start` are the same for a plain script."""

    plan: Plan
    files: SharedFiles
    data: Path
    start: Path
    scratch: Path

    def cell(self, engine: str) -> Cell:
        return next(cell for cell in self.plan.cells if cell.name == f"{engine}/cpu")


@contextlib.contextmanager
def inputs(
    engines: tuple[str, ...],
    steps: int,
    model: str = "lenet",
    batch_size: int = 128,
    heap: Heap = "keep",
    threads: int | None = None,
) -> Iterator[Inputs]:
    """A network on the CPU, with synthetic images for blocks of `steps` timed steps.

    The images are written as CIFAR-10's own files, because a plain script has to read them; or tokens as
    `--describe` writes them.
    """
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as folder:
        data, scratch, start = Path(folder) / "data", Path(folder) / "scratch", Path(folder) / "start.npz"
        data.mkdir()
        scratch.mkdir()
        taken = max(UNTIMED_STEPS + steps, WARM_UP_STEPS)
        tokens = model in OF_TOKENS
        if not tokens:
            _write_binary_batches(data, -(-taken * batch_size // 5))
        source = "synthetic" if tokens else str(data)
        study = Study(
            engines, ("cpu",), model=model, data=source, batch_size=batch_size, threads=threads, heap=heap
        )
        plan = resolve(study)
        files = shared_files.write(plan, scratch)
        if tokens:
            write_inputs(data, files.dataset, np.arange(len(files.dataset.labels)))
        command = [sys.executable, "-m", "polybench", "weights", "--model", model, "--data", source]
        command += ["--batch-size", str(batch_size), "--steps", str(taken), "--output", str(start)]
        subprocess.run(command, check=True, capture_output=True)
        yield Inputs(plan, files, data, start, scratch)


def _write_binary_batches(folder: Path, images_per_file: int) -> None:
    chunks = list(synthetic.chunks(5 * images_per_file, 0, "train"))
    images = np.concatenate([chunk.images for chunk in chunks]).reshape(5 * images_per_file, -1)
    labels = np.concatenate([chunk.labels for chunk in chunks])
    for number, records in enumerate(np.split(np.column_stack([labels, images]), 5), start=1):
        records.tofile(folder / f"data_batch_{number}.bin")


@contextlib.contextmanager
def warm_worker(
    given: Inputs, cell: Cell, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[WorkerProcess]:
    """A fresh worker, loaded and warmed up as in the first part of a replicate."""
    with warm_workers(given, [cell], more) as workers:
        yield workers[cell]


@contextlib.contextmanager
def warm_workers(
    given: Inputs, cells: Sequence[Cell], more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[dict[Cell, WorkerProcess]]:
    """The same for several, side by side; `more` are variables that replace those of a study."""
    study, threads = given.plan.study, given.plan.workload.threads
    with contextlib.ExitStack() as stack:
        workers = {}
        for cell in cells:
            environment = worker_environment(row(cell), cell.device, threads, cell.variants, study.heap)
            log = given.scratch / f"{cell.engine}.log"
            workers[cell] = stack.enter_context(WorkerProcess({**environment, **more}, log))
        _ask_all(workers, lambda cell: Load(row(cell).factory), Loaded)
        weights, epoch = str(given.files.weights), given.files.epoch
        _ask_all(workers, lambda cell: Prepare(given.plan.job(cell), weights, epoch, WARM_UP_STEPS), Prepared)
        for worker in workers.values():
            measure(worker, _CALIBRATION_STEPS)
        yield workers


def _ask_all(
    workers: Mapping[Cell, WorkerProcess], request_of: Callable[[Cell], Request], kind: type[msgspec.Struct]
) -> None:
    for cell, worker in workers.items():
        worker.send(request_of(cell))
    for cell, worker in workers.items():
        worker.receive(request_of(cell), kind, TIMEOUT)


T = TypeVar("T")


def watched(pid: int, block: Callable[[], T]) -> tuple[T, KernelUse]:
    """What a block in a live process gives, and what the kernel counted of that process meanwhile."""
    before = kernel_counts(pid)
    given = block()
    after = kernel_counts(pid)
    assert before is not None, "the process is alive"
    assert after is not None, "the process has just answered"
    return given, after.since(before)


def measure(worker: WorkerProcess, steps: int) -> list[float]:
    """One block, as in a round: seconds of its steps."""
    return worker.ask(Measure(steps), Measured, TIMEOUT).step_seconds
