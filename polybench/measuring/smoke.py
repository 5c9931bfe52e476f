"""The smoke test: two steps of `lenet` in a worker, as a study would ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import Job
from polybench.core.spec import Workload
from polybench.data import Dataset
from polybench.data.batches import epoch_order
from polybench.data.epoch import write_epoch
from polybench.engines import ENGINES
from polybench.machine import host
from polybench.measuring.scratch import scratch_folder
from polybench.models import MODELS
from polybench.models.initial_weights import initial_weights
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded, Prepare, Prepared
from polybench.wire.process import WorkerProcess

_SECONDS = 600.0
_STEPS, _BATCH_SIZE = 2, 8


def smoke_test(engine: str) -> Prepared:
    """Train on noise; the startup and the losses.

    Raises:
        Unavailable: what the worker lacks, or how it failed.
    """
    model, row = MODELS["lenet"], ENGINES[engine]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (_STEPS * _BATCH_SIZE, *model.input_shape), dtype=np.uint8)
    labels = random.integers(0, model.classes, len(pixels), dtype=np.uint8)
    threads = host.usable_threads()
    workload = Workload(model.name, "noise", _BATCH_SIZE, model.optimizer, "fp32", threads)
    with scratch_folder() as folder:
        order = epoch_order(len(pixels), _BATCH_SIZE, seed=0, epoch=0)
        epoch = write_epoch(Dataset("synthetic", "noise", pixels, labels, ""), order, folder)
        weights: dict[str, Any] = dict(initial_weights(model, 0))
        np.savez(folder / "weights.npz", **weights)
        job = Job(model, workload, "cpu", "float32")
        with WorkerProcess(worker_environment(row, "cpu", threads), folder / "log") as worker:
            try:
                worker.ask(Load(row.factory), Loaded, _SECONDS)
                prepare = Prepare(job, str(folder / "weights.npz"), epoch, _STEPS)
                return worker.ask(prepare, Prepared, _SECONDS)
            except CellFailed as failure:
                raise Unavailable(f"the smoke test failed: {failure}", "polybench doctor") from failure
