"""Cache of the reference's trainings, which take seconds to minutes and which many studies need."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from polybench.data.file_cache import FileCache, cache_key
from polybench.engines.job import Job

_MAX_BYTES = 2 << 30
"""Maximum size of the cache. An entry of `dlframeworks-cnn` takes 165 MB, one of `lenet` 3 MB."""

Losses = dict[int, float | None]
"""Loss by cached step; None if it is not finite."""


def reference_cache(folder: Path) -> FileCache[Losses]:
    """Return the cache of reference states in this folder, with their losses as metadata."""
    return FileCache(folder, Losses, _MAX_BYTES)


def training_key(job: Job, steps: int, files: Iterable[Path]) -> str:
    """Return a hash of everything that determines the results of a reference training.

    Args:
        job: the reference's job.
        steps: number of training steps.
        files: initial weights and batches, hashed by content.
    """
    # The contents of batches and network determine the result; their names do not. The reference always
    # computes in float64.
    workload = msgspec.structs.replace(
        job.workload,
        dataset="",
        model="",
        precision="fp32",
        threads=1,
        input="preload",
        loader_workers=None,
        augment=False,
        replicas=1,
    )
    job = msgspec.structs.replace(job, workload=workload, model=job.model.without_name())
    return cache_key(job, steps, np.__version__, *files, *_source_files())


def _source_files() -> list[Path]:
    """Return all source files that determine the reference's results and their format in the cache."""
    package = Path(__file__).parents[1]
    engines = package / "engines"
    folders = (engines / "reference", engines / "shared", package / "core", package / "parity_check")
    return sorted([engines / "base.py", *(file for folder in folders for file in folder.rglob("*.py"))])
