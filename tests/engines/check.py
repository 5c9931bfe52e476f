"""Checks on one engine, in a process that `conftest.processes` started for it."""

from __future__ import annotations

import traceback
from pathlib import Path

import msgspec
import numpy as np

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import Layer
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.data.augmentation import augment, decision_stream
from polybench.engines.base import Array, Stream
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from tests.engines.child import loaded_engine


def failures(engine_name: str, folder: Path, checks: dict[str, str]) -> dict[str, str]:
    """Each check's traceback, or "".

    A check is Python code, which finds `engine` with its framework loaded, `build`, and the `images` and
    `labels` that `build` loads; `build_layers(layers, repeats)` builds another network than lenet, and loads
    each image `repeats` times; `stream` makes what input pipelines read.
    """
    engine = loaded_engine(engine_name)
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy")
    with np.load(folder / "weights.npz") as file:
        weights = dict(file)

    def build(device: str = "cpu", precision: str = "fp32", variants: tuple[str, ...] = ()) -> None:
        workload = Workload("lenet", "noise", images.shape[1], Optimizer(), precision, 2)
        engine.build(Job(LENET, workload, device, "float32", variants), weights)
        engine.load(images, labels)

    def build_layers(layers: tuple[Layer, ...], repeats: int, variants: tuple[str, ...] = ()) -> None:
        model = msgspec.structs.replace(LENET, layers=layers)
        workload = Workload("lenet", "noise", repeats * images.shape[1], Optimizer(), "fp32", 2)
        engine.build(Job(model, workload, "cpu", "float32", variants), initial_weights(model, 0))
        engine.load(*(np.repeat(part, repeats, axis=1) for part in (images, labels)))

    names = {
        "engine": engine,
        "images": images,
        "labels": labels,
        "stream": stream,
        "np": np,
        "build": build,
        "build_layers": build_layers,
        "Unavailable": Unavailable,
    }
    tracebacks = dict.fromkeys(checks, "")
    for name, check in checks.items():
        try:
            exec(check, names.copy())
        except Exception:
            tracebacks[name] = traceback.format_exc()
    return tracebacks


def stream(workers: int, augmented: bool, shape: tuple[int, ...] = (3, 32, 32)) -> tuple[Stream, Array]:
    """Four batches of six images, and those batches as they should come out."""
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (24, *shape), dtype=np.uint8)
    order, decisions = random.permutation(24).reshape(4, 6), decision_stream(4, 6, seed=1, steps=4)
    given = Stream(pixels, random.integers(0, 10, 24), order, decisions if augmented else None, workers)
    varied = [
        augment(pixels[indices], chosen) if augmented else pixels[indices]
        for indices, chosen in zip(order, decisions, strict=True)
    ]
    return given, np.stack(varied).astype(np.float32) / np.float32(255)
