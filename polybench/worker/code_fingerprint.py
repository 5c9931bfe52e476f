"""A fingerprint of the code that a worker has loaded, which distinguishes builds of the same version.

A version number does not show edits in place, development installs, build options, or libraries that the
framework finds on the system. All of these are loaded or mapped files.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_MEMORY_MAPS = Path("/proc/self/maps")

_POLYBENCH_JULIA_CACHE = re.compile(r"/compiled/v[\d.]+/PolyBench/")
"""Julia's compiled code of polybench's own package, which a cold start does not use."""


def code_fingerprint() -> str:
    """Hash the path, size and modification time of every loaded module and library.

    The hash excludes polybench's own modules: the cache key of a parity check includes their content, and
    their path may be a link.
    """
    digest = hashlib.sha256()
    for path in sorted({*_module_files(), *_library_files()}):
        try:
            status = Path(path).stat()
        except OSError:  # removed since it was loaded, or generated at run time
            continue
        digest.update(os.fsencode(f"{path} {status.st_size} {status.st_mtime_ns}\n"))
    return digest.hexdigest()


def _module_files() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "polybench":
            continue
        try:
            # Avoids __getattr__, which imports lazily in some modules.
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            continue
        if isinstance(file, str) and (path := Path(file)).is_absolute():
            yield str(_resolved(path.parent) / path.name)


@functools.cache
def _resolved(folder: Path) -> Path:
    """Resolve links, since bundled packages of another environment lie behind links with changing names."""
    return folder.resolve()


def _library_files() -> Iterator[str]:
    """Yield files that are mapped as executable; nothing if /proc is not available."""
    try:
        lines = _MEMORY_MAPS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(None, 5)  # addresses, permissions, offset, device, inode, path
        if (
            len(fields) > 5
            and "x" in fields[1]
            and fields[5].startswith("/")
            and not _POLYBENCH_JULIA_CACHE.search(fields[5])
        ):
            yield fields[5]
