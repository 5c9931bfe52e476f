"""Which code a worker has loaded: what tells a framework from another build of the same version.

A version does not tell what was edited in place, installed in development mode, built with other options, or
is a library that the framework found by itself. All of it is a file that is loaded or mapped.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_MAPS = Path("/proc/self/maps")

_OWN = re.compile(r"/compiled/v[\d.]+/PolyBench/")
"""Julia's compiled code of polybench's own package, which a cold start does without."""


def loaded_code() -> str:
    """A hash of path, size and time of the last change of every module and library that is loaded.

    Polybench's own modules are not in it: their content is known where this is looked at, and its path may be
    a link.
    """
    digest = hashlib.sha256()
    for path in sorted({*_modules(), *_libraries()}):
        try:
            status = Path(path).stat()
        except OSError:  # removed since, or code that was made at run time
            continue
        digest.update(os.fsencode(f"{path} {status.st_size} {status.st_mtime_ns}\n"))
    return digest.hexdigest()


def _modules() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "polybench":
            continue
        try:
            # Not by an attribute: some modules load themselves when one is asked for.
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            continue
        if isinstance(file, str) and (path := Path(file)).is_absolute():
            yield str(_resolved(path.parent) / path.name)


@functools.cache
def _resolved(folder: Path) -> Path:
    """Where it is: what is lent to another environment is behind links whose names change."""
    return folder.resolve()


def _libraries() -> Iterator[str]:
    """What is mapped to be executed; none where the kernel does not tell."""
    try:
        lines = _MAPS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(None, 5)  # addresses, permissions, offset, device, inode, path
        if len(parts) > 5 and "x" in parts[1] and parts[5].startswith("/") and not _OWN.search(parts[5]):
            yield parts[5]
