"""The reference's trainings, kept between studies: one takes seconds to minutes, and many studies need it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from polybench.core.job import Job
from polybench.data.file_cache import FileCache, key_of

_LIMIT = 2 << 30
"""Bytes of all entries: one of `rosetta` has 165 MB, one of `lenet` 3 MB."""

Losses = dict[int, float | None]
"""The loss of each kept step; null where it is not finite."""


def reference_cache(folder: Path) -> FileCache[Losses]:
    """What the reference has trained: its states, noted with their losses."""
    return FileCache(folder, Losses, _LIMIT)


def training_key(job: Job, steps: int, files: Iterable[Path]) -> str:
    """Names a training of the reference by everything that decides what it computes, and by nothing else.

    Args:
        job: the reference's own.
        steps: how many it trains.
        files: initial weights and batches, whose content counts.
    """
    # The content of the batches and of the network counts, whatever they are called. The reference computes
    # in float64 always.
    workload = msgspec.structs.replace(
        job.workload,
        dataset="",
        model="",
        precision="fp32",
        threads=1,
        input="preload",
        workers=None,
        augment=False,
        replicas=1,
    )
    job = msgspec.structs.replace(job, workload=workload, model=job.model.unnamed())
    return key_of(job, steps, np.__version__, *files, *_sources())


def _sources() -> list[Path]:
    """All files that decide what the reference computes, and what of it is kept."""
    package = Path(__file__).parents[1]
    engines = package / "engines"
    folders = (engines / "reference", engines / "support", package / "core", package / "identity")
    return sorted([engines / "base.py", *(file for folder in folders for file in folder.rglob("*.py"))])
