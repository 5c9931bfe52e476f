"""Smoke test: two training steps of `lenet` in a worker, requested as in a study."""

from __future__ import annotations

from typing import Any

import numpy as np

from polybench.data import Dataset
from polybench.data.batch_files import write_epoch
from polybench.data.batches import epoch_order
from polybench.engines import ENGINES
from polybench.engines.job import Job
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine import host
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights
from polybench.protocol.environment import worker_environment
from polybench.protocol.messages import Load, Loaded, Prepare, Prepared
from polybench.protocol.process import WorkerProcess
from polybench.runner.scratch import scratch_folder
from polybench.schema.options import Workload

_TIMEOUT_SECONDS = 600.0
_STEPS, _BATCH_SIZE = 2, 8


def smoke_test(engine: str) -> Prepared:
    """Train two steps on random images, and return startup times and losses.

    Raises:
        EngineUnavailable: the engine is not available, or the smoke test failed.
    """
    model, spec = MODELS["lenet"], ENGINES[engine]
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
        with WorkerProcess(worker_environment(spec, "cpu", threads), folder / "log") as worker:
            try:
                worker.request(Load(spec.factory), Loaded, _TIMEOUT_SECONDS)
                prepare = Prepare(job, str(folder / "weights.npz"), epoch, _STEPS)
                return worker.request(prepare, Prepared, _TIMEOUT_SECONDS)
            except ConfigurationFailed as error:
                raise EngineUnavailable(f"the smoke test failed: {error}", "polybench doctor") from error
