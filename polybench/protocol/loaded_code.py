"""The files that a worker has loaded, which distinguish builds of the same version.

A version number does not show edits in place, development installs, build options, or libraries that the framework
finds on the system. docs/design.md says what these files do not show either.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

_MEMORY_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r"^\S+ ..x. \S+ \S+ \S+ +(/.*)$", re.MULTILINE)
"""A line of `_MEMORY_MAPS` with a file that is mapped as executable."""
_POLYBENCH_JULIA_CACHE = re.compile(r"/compiled/v[\d.]+/PolyBench\w*/")
"""Julia's compiled code of polybench's own packages, which a cold start does not use."""

Code = Mapping[str, str]
"""Path of a file, without links between folders -> its size and modification time."""


def loaded_code() -> dict[str, str]:
    """Return the files of all modules and mapped libraries of this process.

    polybench's own modules are left out: the cache key of a parity check has their content.
    """
    modules = [_file(module) for name, module in [*sys.modules.items()] if name.partition(".")[0] != "polybench"]
    libraries = _LIBRARY.findall(_MEMORY_MAPS.read_text("utf-8", "surrogateescape")) if _MEMORY_MAPS.exists() else []
    loaded = (path for path in (*modules, *libraries) if path and not _POLYBENCH_JULIA_CACHE.search(path))
    paths = [os.path.split(path) for path in loaded]
    # Those of another environment are links. Each holds hundreds of files.
    folders = {folder: os.path.realpath(folder) for folder in {folder for folder, _ in paths}}
    files = {os.path.join(folders[folder], name) for folder, name in paths}  # noqa: PTH118 - thousands
    stamps = {path: stamp for path in sorted(files) if (stamp := _stamp(path))}
    return {os.fsencode(path).decode("utf-8", "backslashreplace"): stamp for path, stamp in stamps.items()}


def _file(module: object) -> Any:
    try:  # without `__getattr__`, which imports in some modules
        return object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None


def _stamp(path: str) -> str | None:
    """Return size and modification time of a file, or of the archive that contains it; None if neither exists."""
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands
    except NotADirectoryError:
        return _stamp(os.path.dirname(path))  # noqa: PTH120
    except OSError:
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


def changed_files(code: Code) -> list[str]:
    """List the files that have changed since; those that were removed may have been temporary."""
    return [path for path, stamp in code.items() if _stamp(path) not in {stamp, None}]


def changed_names(before: Code, now: Code) -> list[str]:
    """List all files that have changed, or are loaded only before or now."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def describe_changes(names: Collection[str]) -> str:
    """Return a sentence that names the first changes."""
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"the loaded code changed: {', '.join(sorted(names)[:3])}{others}"


def fingerprint(code: Code) -> str | None:
    """Return one hash of all code; None without any."""
    return hashlib.sha256(msgspec.json.encode(code)).hexdigest() if code else None
