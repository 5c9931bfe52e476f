"""Room on the disk: asked for before a large file is written, and named when it runs out all the same."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from polybench.core.errors import BadInput

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REMEDY = "free some space, or set TMPDIR to a folder on a larger disk"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, which becomes `path` when it is complete; a reader sees the old one or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


@contextmanager
def room(folder: Path, needed: int) -> Iterator[None]:
    """Inside this context about `needed` bytes are written to `folder`, which is made if it is not there.

    Raises:
        BadInput: the disk has less than that free, or fills up meanwhile, or the folder cannot be written.
    """
    size = f"{needed / 1e6:,.1f} MB ({needed} bytes) are needed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise BadInput(f"{folder} has {free / 1e6:,.1f} MB free, {size}; {_REMEDY}")
        yield
    except OSError as error:
        if error.errno is None:  # not from the system
            raise
        if error.errno in _FULL:
            raise BadInput(f"the disk of {folder} is full, {size}; {_REMEDY}") from error
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another folder") from error
