"""Cache of passed parity checks, so that later studies need not repeat them.

A key consists of everything that determines the result and is known before a worker starts. Versions and code
of the framework are known only to a worker, so the cached entry has them. The caller compares them
with a running worker. Failed checks are not cached.
"""

from __future__ import annotations

import functools
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from polybench.data.file_cache import FileCache, cache_key
from polybench.parity_check.check import CheckRequest, source_files
from polybench.protocol.calls import Loaded
from polybench.protocol.loaded_code import changed_files
from polybench.schema.parity import ParityCheck

_MAX_BYTES = 256 << 20
"""Maximum size of the cache. The files that an engine has loaded take 0.2 MB (PyTorch) to 0.8 MB (TensorFlow)."""


class CachedCheck(msgspec.Struct, frozen=True):
    """Holds a passed check, the worker's description of its framework, and the files that it loaded later."""

    worker_info: Loaded
    parity: ParityCheck
    later_code: dict[str, str] = {}


class CheckContext(NamedTuple):
    """Everything apart from the request that determines the result of a check.

    `environment` has the worker's variables, as far as engines are known to read them; `python` path and version of the
    interpreter; `machine` host name, CPU model and CPU features, for a GPU also the GPUs.
    """

    factory: str
    environment: Mapping[str, str]
    python: tuple[str, str | None]
    machine: tuple[str, ...]


class CheckCache:
    """Folder of cached checks, which need not exist. If it cannot be used, checks are repeated."""

    def __init__(self, folder: Path) -> None:
        self._cache = FileCache(folder, CachedCheck, _MAX_BYTES)

    @functools.cached_property
    def _source_digest(self) -> str:
        return cache_key(*source_files())  # reads all of polybench, so only when an engine is checked

    def key(self, request: CheckRequest, context: CheckContext) -> str:
        """Return a hash of everything that determines the result and is known before a worker starts."""
        # The contents of batches and network determine the result; their names do not.
        workload = msgspec.structs.replace(request.job.workload, dataset="", model="")
        job = msgspec.structs.replace(request.job, workload=workload, model=request.job.model.without_name())
        files = [request.weights, Path(request.epoch.images_path), Path(request.epoch.labels_path)]
        pipeline: tuple[int, ...] | None = None
        if (stream := request.pipeline_files) is not None:
            pipeline = stream.loader_workers, stream.steps_per_epoch, stream.bytes
            files += [Path(path) for path in (stream.order_path, stream.augmentations_path) if path is not None]
        polybench_side = platform.python_version(), np.__version__, sys.byteorder, self._source_digest
        return cache_key(job, request.steps, pipeline, context, polybench_side, *files)

    def find(self, key: str) -> CachedCheck | None:
        """Return the passed check with this key, or None."""
        with tempfile.TemporaryDirectory() as empty:
            found = self._cache.find(key, Path(empty))
        is_valid = found is not None and found.parity.status == "pass" and not changed_files(found.later_code)
        return found if is_valid else None

    def save(self, key: str, check: CachedCheck) -> None:
        """Save or replace the check if it passed."""
        if check.parity.status == "pass":
            with tempfile.TemporaryDirectory() as empty:
                self._cache.replace(key, Path(empty), check)

    def delete(self, key: str) -> None:
        """Delete the check with this key."""
        self._cache.evict(key)
