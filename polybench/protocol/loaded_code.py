"""The code that a worker has loaded, which distinguishes builds of the same version.

A version number does not show edits in place, development installs, build options, libraries that the framework
finds on the system, or code that Python runs at its start. All of these are files, except for a few modules.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import marshal
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from polybench.data import supervisor

_MEMORY_MAPS = Path("/proc/self/maps")

_POLYBENCH_JULIA_CACHE = re.compile(r"/compiled/v[\d.]+/PolyBench\w*/")
"""Julia's compiled code of polybench's own package and its extensions, which a cold start does not use."""

_WITHOUT_CODE: tuple[object, ...] = (BuiltinImporter, FrozenImporter)
"""Loaders of code that is part of Python."""
_STARTUP_MODULES = ("sitecustomize", "usercustomize")
_NAMED_CHANGES = 3
_BYTECODE = "/__pycache__/"
_BYTECODE_SECONDS = 60.0

_START = """
import json, os, sys
files = {}
def record(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and not arguments[2] & os.O_ACCMODE:
        files[arguments[0]] = None
sys.addaudithook(record)
import site
site.main()
print()
print(json.dumps([*files]), flush=True)
os._exit(0)
"""
"""Starts Python again, as far as its own code allows, and prints the files that it reads."""
_START_SECONDS = 60.0

Code = Mapping[str, str]
"""File, or module without a file -> a text that differs if the code differs."""

_sought: dict[str, Any] = {}
"""Module that was imported -> where it was sought. It may have removed itself from `sys.modules`."""


class _ImportRecorder:
    """Finds no module, but learns which are imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: object = None) -> None:  # noqa: ARG004 - a finder has it
        _sought[name] = path


def record_imports() -> None:
    """Record all imports from now on."""
    sys.meta_path.insert(0, _ImportRecorder)


def loaded_code() -> dict[str, str]:
    """Return all code that this process has loaded, except polybench's own modules.

    The cache key of a parity check includes their content, and their path may be a link.
    """
    code = {path: stamp for path in {*_startup_files(), *_library_files()} if (stamp := stamp_file(path))}
    code |= _files_read_at_start()
    for name in {**sys.modules, **_sought}:
        if name.partition(".")[0] != "polybench":
            code |= _module_code(name, sys.modules.get(name)) or _sought_code(name)
    return {os.fsencode(name).decode("utf-8", "backslashreplace"): code[name] for name in sorted(code)}


def stamp_file(path: str) -> str | None:
    """Return a text that differs after every write to the file; None if it does not exist.

    It includes the time of the last status change, because programs can set the modification time.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - called for thousands of files
    except OSError:
        return None
    times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return hashlib.blake2b(times.encode(), digest_size=6).hexdigest()


def changed_files(code: Code) -> list[str]:
    """List the files that have changed since; those that were removed may have been temporary."""
    return [path for path, stamp in code.items() if stamp_file(path) not in {stamp, None}]


def changed_names(before: Code, now: Code) -> list[str]:
    """List all code that has changed, or is loaded only before or now."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def without_recompiled(names: Collection[str], python: str) -> list[str]:
    """Return the changed names without bytecode that this Python may have compiled from the unchanged source."""
    sources, bytecode = set(names), [name for name in names if _BYTECODE in name]
    if bytecode:
        command = [python, "-I", str(Path(__file__).with_name("check_bytecode.py")), *filter(os.path.exists, bytecode)]
        done = supervisor.run(command, _BYTECODE_SECONDS)
        foreign = bytecode if done.returncode else json.loads(done.stdout)
        sources -= {*bytecode} - {*foreign}
    return sorted(sources)


def describe_changes(names: Collection[str]) -> str:
    """Return a sentence that names the first changes."""
    others = f" and {len(names) - _NAMED_CHANGES} more" if len(names) > _NAMED_CHANGES else ""
    return f"the loaded code changed: {', '.join(sorted(names)[:_NAMED_CHANGES])}{others}"


def without_bytecode(code: Code) -> dict[str, str]:
    """Return the code without files that Python compiles from the others, at any time and in any process."""
    return {name: stamp for name, stamp in code.items() if _BYTECODE not in name}


def fingerprint(code: Code) -> str | None:
    """Return one hash of all code; None without any."""
    return hashlib.sha256(msgspec.json.encode(code)).hexdigest() if code else None


def _files_read_at_start() -> dict[str, str]:
    """Return the files that Python and its startup code read; if that fails, a text that never repeats."""
    done = supervisor.run([sys.executable, "-P", "-S", "-c", _START], _START_SECONDS)
    try:
        files = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"startup code": secrets.token_hex(6)}
    on_disk = [file for file in files if not file.startswith(("/proc/", "/sys/", "/dev/"))]
    return {path: stamp for file in on_disk for path, stamp in _existing_file(file).items()}


def _sought_code(name: str) -> dict[str, str]:
    """Return the files of a module that was imported, and is no longer known as such."""
    spec = PathFinder.find_spec(name, _sought[name]) if name in _sought else None
    return _existing_file(spec.origin) | _existing_file(spec.cached) if spec else {}


def _module_code(name: str, module: ModuleType | None) -> dict[str, str]:
    """Return the files of a module: its source or archive, and its bytecode; without a file, the module's code."""
    try:
        # Avoids __getattr__, which imports lazily in some modules.
        attributes = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    code = _existing_file(attributes.get("__file__"))
    loader = getattr(attributes.get("__spec__"), "loader", None)
    if not code and loader is not None and loader not in _WITHOUT_CODE:
        code = {name: _stamp_code(name, loader)}
    return code | _existing_file(attributes.get("__cached__"))


def _existing_file(file: object) -> dict[str, str]:
    """Return the stamp of a file, or of the archive that contains it; empty if neither exists."""
    if not isinstance(file, str) or not file.startswith("/"):
        return {}
    folder, _, name = file.rpartition("/")
    path = f"{_resolved(folder)}/{name}"
    if (stamp := stamp_file(path)) is not None:
        return {path: stamp}
    archives = (str(parent) for parent in Path(path).parents if parent.is_file())
    return {archive: stamp for archive in archives if (stamp := stamp_file(archive))}


def _stamp_code(name: str, loader: Any) -> str:
    """Return a hash of what an importer of another kind has loaded; if it does not tell, a text that never repeats."""
    try:
        # Version 2 has no references, which depend on the process.
        return hashlib.blake2b(marshal.dumps(loader.get_code(name), 2), digest_size=6).hexdigest()
    except Exception:
        return secrets.token_hex(6)


@functools.cache
def _resolved(folder: str) -> str:
    """Resolve links, since bundled packages of another environment lie behind links with changing names."""
    return str(Path(folder).resolve())


def _startup_files() -> Iterator[str]:
    """Yield what runs before the worker's own code, even if it has removed its modules, and what configures it."""
    for folder in sys.path:
        yield from map(str, Path(folder).glob("*.pth"))
    for name in _STARTUP_MODULES:
        with contextlib.suppress(ValueError):  # the module has no origin
            if (spec := importlib.util.find_spec(name)) and spec.origin:
                yield spec.origin
    if "torch" in sys.modules:  # the compiler of TorchInductor
        yield from filter(None, [shutil.which(os.environ.get("CXX", "g++"))])
    if "keras" in sys.modules:
        yield str(Path(os.environ.get("KERAS_HOME", "~/.keras"), "keras.json").expanduser())


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
