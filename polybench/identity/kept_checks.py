"""Identity checks that have passed, kept between studies: what was checked need not be checked again.

A check is named by all that decides how it ends and is known without starting anything; what only a worker
can tell, its framework's versions and code, is kept beside the verdict, for whoever has a worker to compare.
Only passes are kept: whatever fails is looked at again.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from polybench.core.document.identity import Parity
from polybench.data.file_cache import FileCache, key_of
from polybench.identity.check import Task
from polybench.wire.messages import Loaded

_LIMIT = 64 << 20
"""Bytes of all entries: one of `lenet` has 30 kB, one of `resnet32` 300 kB."""


class KeptCheck(msgspec.Struct, frozen=True):
    """What a worker was, and that it passed."""

    loaded: Loaded
    parity: Parity


class Circumstances(NamedTuple):
    """What decides how a check ends, beside its task.

    Attributes:
        factory: of the engine.
        environment: variables that its worker has, as far as anything is known to read them.
        python: what runs it, and its version.
        machine: its name, its processor and what that can do; for a GPU, which ones there are.
    """

    factory: str
    environment: Mapping[str, str]
    python: tuple[str, str | None]
    machine: tuple[str, ...]


class KeptChecks:
    """A folder of checks.

    Args:
        folder: of the entries; it need not be there, and one that cannot be used costs time only.
    """

    def __init__(self, folder: Path) -> None:
        self._cache = FileCache(folder, KeptCheck, _LIMIT)
        self._sources = key_of(*own_programs())

    def key(self, task: Task, circumstances: Circumstances) -> str:
        """Names a check by everything that decides it, and that can be known beforehand."""
        # The content of the batches and of the network counts, not where they came from or what it is called.
        workload = msgspec.structs.replace(task.job.workload, dataset="", model="")
        job = msgspec.structs.replace(task.job, workload=workload, model=task.job.model.unnamed())
        files = [task.weights, Path(task.epoch.images_path), Path(task.epoch.labels_path)]
        drawn: tuple[int, ...] | None = None
        if (stream := task.stream) is not None:
            drawn = stream.workers, stream.steps_in_epoch, stream.bytes
            files += [Path(path) for path in (stream.order_path, stream.decisions_path) if path is not None]
        ours = platform.python_version(), np.__version__, sys.byteorder, self._sources
        return key_of(job, task.steps, drawn, circumstances, ours, *files)

    def find(self, key: str) -> KeptCheck | None:
        """The check of this name, if one has passed."""
        with tempfile.TemporaryDirectory() as nothing:
            found = self._cache.find(key, Path(nothing))
        return found if found is not None and found.parity.status == "pass" else None

    def keep(self, key: str, check: KeptCheck) -> None:
        """Keep it, in place of an earlier one, if it has passed."""
        if check.parity.status == "pass":
            with tempfile.TemporaryDirectory() as nothing:
                self._cache.replace(key, Path(nothing), check)

    def drop(self, key: str) -> None:
        """Keep no check of this name."""
        self._cache.drop(key)


def own_programs() -> list[Path]:
    """Polybench's own programs, all of them: few decide nothing, and a list of those that do would age."""
    package = Path(__file__).parents[1]
    julia = package.parent / "julia"  # of a checkout; an installed package has these two inside
    parts = (*package.rglob("*.jl"), *julia.glob("src/*.jl"), *julia.glob("ext/*.jl"))
    return sorted([*package.rglob("*.py"), *parts])
