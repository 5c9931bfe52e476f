"""Checks an engine's own dropout: the share of values that it keeps, and the factor that multiplies them.

A network of one dropout layer and one dense layer trains for one step, on images of ones and from zero weights. All
logits are 0, so the new weights show what the dense layer read: with B images of labels 0 to B - 1 and C classes, the
weights of class c are (x_c - mean of all x) / B for a rate of 1, and those of a class without images lack x_c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from polybench.data.batch_files import EpochFile
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Dense, Dropout, Flatten, Layer
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.protocol import calls
from polybench.schema.parity import TensorComparison

_IMAGES = 16
"""With them, a step draws 65,536 values, so that 5 standard deviations of the kept share are at most 0.01."""

_INPUT_SHAPES = {1: (4, 32, 32), 2: (64, 64), 3: (4, 32, 32)}
"""By number of axes of the dropout layer's input; a flatten layer makes one axis."""

_STANDARD_DEVIATIONS = 5
"""An engine with the right rate exceeds them once in two million checks."""

_SCALE_TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 2e-2}
"""Tolerance of the factor: the rounding of 1 / (1 - rate) and of a product; 2^-10 in tf32, 2^-8 in bf16."""

Ask = Callable[[calls.Request[Any]], Any]
"""Sends a request to the engine and returns its answer."""


def own_dropout_errors(ask: Ask, job: Job, folder: Path) -> Iterator[TensorComparison]:
    """Check each dropout layer of the model that differs in rate or number of axes, with files in a new folder."""
    folder.mkdir()
    layers = {(layer.rate, len(shape)): layer for layer, shape in job.model.activations() if isinstance(layer, Dropout)}
    for (rate, axes), layer in layers.items():
        x = _read_by_dense_layer(ask, job, layer, axes, folder)
        kept = np.abs(x) > 0.1
        deviation = math.sqrt(rate * (1 - rate) / x.size)
        share = abs(float(kept.mean()) - (1 - rate))
        yield TensorComparison("timed", layer.name, 0, "kept share", share, _STANDARD_DEVIATIONS * deviation)
        scale = float(np.abs(x[kept] * (1 - rate) - 1).max(initial=0.0))
        yield TensorComparison("timed", layer.name, 0, "dropout scale", scale, _SCALE_TOLERANCE[job.workload.precision])


def _read_by_dense_layer(ask: Ask, job: Job, dropout: Dropout, axes: int, folder: Path) -> np.ndarray[Any, Any]:
    """Return the outputs of the dropout layer for images of ones: (images, values)."""
    replicas, shape = job.workload.replicas, _INPUT_SHAPES[axes]
    images = replicas * math.ceil(_IMAGES / replicas)
    values, classes = math.prod(shape), 2 * images
    layers: list[Layer] = [dropout, Flatten()]
    model = Model(
        name="own dropout",
        summary="",
        input_shape=shape,
        classes=classes,
        layers=(*(layers if axes > 1 else reversed(layers)), Dense("dense", values, classes)),
        batch_size=images,
        optimizer=Optimizer("sgd", 1.0),
        parity_batch_size=images,
    )
    workload = msgspec.structs.replace(
        job.workload, batch_size=images, optimizer=model.optimizer, input="preload", loader_workers=None, augment=False
    )
    paths = [str(folder / name) for name in ("ones", "labels.i64", "weights.npz", "gradients.npz")]
    ones, labels, weights, gradients = paths
    np.ones((1, images, *shape), np.float32).tofile(ones)
    np.arange(images).tofile(labels)
    zeros = {"dense.weight": np.zeros((classes, values), np.float32), "dense.bias": np.zeros(classes, np.float32)}
    np.savez(weights, **zeros)  # type: ignore[arg-type]
    job = msgspec.structs.replace(job, model=model, workload=workload, dropout="own")
    epoch = EpochFile(ones, labels, 1, images, shape)
    try:
        ask(calls.prepare(job, weights, epoch))
    except EngineUnavailable:  # a variant of layers that this network lacks
        ask(calls.prepare(msgspec.structs.replace(job, variants=()), weights, epoch))
    ask(calls.run_steps(0, 1))
    ask(calls.take_snapshot(0, gradients, weights))
    with np.load(weights) as file:
        new = file["dense.weight"].astype(np.float64)
    return np.asarray(images * (new[:images] - new[-1]))
