"""The reference's trainings, kept between studies: one takes seconds to minutes, and many studies need it.

An entry is a folder: the files of a training, and a manifest with their SHA-256 and the losses. It appears
whole, by renaming, and whoever uses it has its files under names of its own (hard links), so that it can be
removed at any time, by any process. No process waits for another.

Libraries for this (diskcache, joblib) keep pickled objects, and none checks what it kept. These are files of
up to hundreds of megabytes, which are compared tensor by tensor.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np

from polybench.core.job import Job

LIMIT = 2 << 30
"""Bytes of all entries: one of `rosetta` has 165 MB, one of `lenet` 3 MB."""

_MANIFEST = "manifest.json"

Losses = dict[int, float | None]
"""The loss of each kept step; null where it is not finite."""


class _Manifest(msgspec.Struct, frozen=True):
    losses: Losses
    sha256: dict[str, str]


def training_key(job: Job, steps: int, files: Iterable[Path]) -> str:
    """Names a training of the reference by everything that decides what it computes, and by nothing else.

    Args:
        job: the reference's own.
        steps: how many it trains.
        files: initial weights and batches, whose content counts.
    """
    # The content of the batches counts, not where they came from. The reference computes in float64 always.
    workload = msgspec.structs.replace(
        job.workload, dataset="", precision="fp32", threads=1, input="preload", workers=None, augment=False
    )
    training = (msgspec.structs.replace(job, workload=workload), steps, np.__version__)
    digest = hashlib.sha256(msgspec.json.encode(training))
    for path in (*files, *_sources()):
        digest.update(_sha256(path).encode())
    return digest.hexdigest()[:32]


def _sources() -> list[Path]:
    """All files that decide what the reference computes, and what of it is kept."""
    package = Path(__file__).parents[1]
    engines = package / "engines"
    folders = (engines / "reference", engines / "support", package / "core", package / "identity")
    return sorted([engines / "base.py", *(file for folder in folders for file in folder.rglob("*.py"))])


class ReferenceCache:
    """A folder of entries; beyond `limit` bytes, those that were not used for longest are removed."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit

    def fetch(self, key: str, into: Path, train: Callable[[], Losses]) -> Losses:
        """Put the files of a training into a folder; they are the caller's own.

        Args:
            key: names the training.
            into: an empty folder.
            train: writes the files there, if there is no such entry or a damaged one, which is removed.

        Returns:
            The losses of its steps.
        """
        known = self._taken(key, into)
        if known is not None:
            return known
        losses = train()
        # A cache that cannot be written, or that is full, costs time only.
        with contextlib.suppress(OSError):
            self._keep(key, into, losses)
        return losses

    def _taken(self, key: str, into: Path) -> Losses | None:
        """The losses of an entry whose files are now in `into`; None if it is not there as it was written."""
        entry = self._folder / key
        if not entry.exists():
            return None
        try:
            manifest = msgspec.json.decode((entry / _MANIFEST).read_bytes(), type=_Manifest)
            _stamp(entry)
            _link(entry, into, manifest.sha256)
            sound = all(_sha256(into / name) == wanted for name, wanted in manifest.sha256.items())
        except (OSError, msgspec.MsgspecError):  # another process may just remove it
            sound = False
        if sound:
            return manifest.losses
        shutil.rmtree(entry, ignore_errors=True)
        for file in into.iterdir():
            file.unlink()
        return None

    def _keep(self, key: str, files: Path, losses: Losses) -> None:
        names = [file.name for file in files.iterdir()]
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            _link(files, fresh, names)
            manifest = _Manifest(losses, {name: _sha256(fresh / name) for name in names})
            (fresh / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
            entry = fresh.rename(self._folder / key)  # fails if another process was faster
            _stamp(entry)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # it is there no more, if all went well
        self._make_room(entry)

    def _make_room(self, newest: Path) -> None:
        entries = sorted(self._folder.iterdir(), key=_last_use)
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total <= self._limit:
                return
            if entry != newest:
                shutil.rmtree(entry, ignore_errors=True)
                total -= sizes[entry]


def _link(source: Path, target: Path, names: Iterable[str]) -> None:
    """The files under a second name; copies, where the file system has no such links."""
    for name in names:
        try:
            os.link(source / name, target / name)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(source / name, target / name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(entry: Path) -> None:
    """Used now; the kernel's own time stamps are milliseconds apart."""
    now = time.time_ns()
    os.utime(entry, ns=(now, now))


def _last_use(entry: Path) -> int:
    try:
        return entry.stat().st_mtime_ns
    except FileNotFoundError:  # another process has removed it
        return 0


def _size(entry: Path) -> int:
    try:
        return sum(file.stat().st_size for file in entry.iterdir())
    except OSError:
        return 0
