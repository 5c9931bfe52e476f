"""Loads a program as a Julia package, whose code is compiled once for all workers, or includes it like a script.

A user's program becomes a package if it only declares something (`declarations` in `julia/src/program_source.jl`):
other code at its top level would run in the process that compiles it, and not in the workers.

A package is a folder in the cache, by the hash of its files, which is also the depot of its own compiled code: Julia
looks up the packages that it loads in the worker's project.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from polybench.engines.flux.julia.discovery import NAME, package_project
from polybench.engines.flux.julia.environment import environments_folder
from polybench.networks.source_text import literal

MAX_PACKAGES = 20
"""Packages that the cache keeps: those that were used last."""

_DEPENDENCIES = {
    "PrecompileTools": "aea7be01-6a6a-4083-8856-8a6e6704d82a",
    "PythonCall": "6099a3de-0909-46bc-b1f4-468b9a2dfc0d",
}
LIBRARIES = {
    "Flux": "587475ba-b771-5e3f-ad9e-33799f191a9c",
    "Lux": "b2108857-7c20-44ae-9111-449ecde12c47",
    "OneHotArrays": "0b1bfda6-eb8a-41d2-88d8-f5af5cad476f",
    "Optimisers": "3bd65402-5787-11e9-1adc-39752487f4e2",
    "Random": "9a3f8284-a2c9-5f02-9a11-845980a1fd5c",
    "Zygote": "e88e6eb3-aa80-5325-afca-941959d7151f",
}
"""Packages that programs load; Flux brings all but Lux, whether or not the project has them directly."""
_USING = re.compile(r"^using (\w+)", re.MULTILINE)

_LOAD = """
function (folder, name, is_writable)
    depot = joinpath(folder, name)
    push!(LOAD_PATH, folder) # last, so that the project has all other packages
    insert!(DEPOT_PATH, is_writable ? 1 : length(DEPOT_PATH) + 1, depot) # the first one gets compiled code
    try
        return @eval Main (import $(Symbol(name)); $(Symbol(name)))
    finally
        filter!(!=(depot), DEPOT_PATH)
        pop!(LOAD_PATH)
    end
end
"""
_MODULE = """module {name}

include("program.jl")

import {package}
import PythonCall # its methods invalidate code that was compiled without them
using PrecompileTools: @compile_workload

const program = @__MODULE__
@compile_workload {workload}

end
"""
_OWN_MODULE = """module {name}

import {package}
import PythonCall # its methods invalidate code that was compiled without them
using PrecompileTools: @compile_workload

module Program end
let text = read(joinpath(@__DIR__, "program.jl"), String), path = {path}
    # Files that it includes are relative to its own.
    task_local_storage(() -> Base.include_string(Program, text, path), :SOURCE_PATH, path)
end

@compile_workload {workload}

end
"""
"""The package of a user's program, which may have any names. The variable of its workload is `Program`."""
_INCLUDE = """
function (folder, path, text)
    program = Module(:Program)
    Core.eval(program, :(include(path) = Base.include($program, path)))
    push!(LOAD_PATH, folder) # names what it loads, which the project may have only indirectly
    try
        task_local_storage(() -> Base.include_string(program, text, path), :SOURCE_PATH, path)
    finally
        pop!(LOAD_PATH)
    end
    return program
end
"""


_included: dict[str, Any] = {}
"""Modules of this process by their text."""


def include(main: Any, text: str) -> Any:
    """Return the program as a module of this process, which Julia compiles while it runs."""
    if text not in _included:
        _included[text] = include_own(main, Path("program.jl"), text)
    return _included[text]


def include_own(main: Any, path: Path, text: str) -> Any:
    """Return a user's program as a module of this process; files that it includes are relative to its path."""
    with tempfile.TemporaryDirectory(prefix="polybench-program-") as folder:
        Path(folder, "Project.toml").write_text(tomli_w.dumps({"deps": _libraries(text)}), "utf-8")
        return main.seval(_INCLUDE)(folder, str(path), text)


def _libraries(text: str) -> dict[str, str]:
    """Return the packages that a program loads, by name with their UUIDs."""
    return {name: LIBRARIES[name] for name in sorted({*_USING.findall(text)} & {*LIBRARIES})}


def load_package(main: Any, text: str, workload: str) -> Any:
    """Return the program as a module with compiled code, which the first worker that needs it compiles.

    `workload` is an expression that runs it, for the compilation; its variable `program` is the module. Return None if
    the cache cannot be written.
    """
    try:
        return _load(main, _package(text, workload))
    except OSError:
        return None


def _package(text: str, workload: str) -> _Package:
    dependencies = {**_DEPENDENCIES, **_libraries(text), NAME: package_project()["uuid"]}
    return _Package(text, _MODULE, {"workload": workload}, dependencies)


def load_own_package(main: Any, path: Path, text: str, workload: str, manifest: str) -> Any:
    """Return a user's program as a module with compiled code, as `load_package` does; its variable is `Program`.

    Return None as well if the program may do more than declare something, or cannot be compiled with the packages of
    the project's `manifest`: later workers do not try again.
    """
    if (package := _own_package(main.PolyBench, path, text, workload, manifest)) is None:
        return None
    failed = environments_folder() / "programs" / package.name / "failed"
    try:
        return None if failed.exists() else _load(main, package).Program
    except OSError:
        return None
    except Exception:
        traceback.print_exc()  # the worker's log says why each worker compiles the program
        with suppress(OSError):
            failed.touch()
        return None


def _own_package(polybench: Any, path: Path, text: str, workload: str, manifest: str) -> _Package | None:
    packages, has_declarations, included = str(polybench.Python.declared(str(path), text)).partition("\n")
    if not has_declarations:
        return None
    installed = dict(one.split("=") for one in packages.split())
    dependencies = {**_libraries(text), **installed, **_DEPENDENCIES, NAME: package_project()["uuid"]}
    fields = {"workload": workload, "path": literal(str(path))}
    return _Package(text, _OWN_MODULE, fields, dependencies, (manifest, included))


class _Package(NamedTuple):
    """A program as a package: its text, the template of its module with its fields, the packages that it loads, by name
    with their UUIDs, and other texts on which its code depends.
    """

    text: str
    template: str
    fields: Mapping[str, str]
    dependencies: Mapping[str, str]
    others: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        parts = [self.text, self.template, *self.fields.values(), *self.dependencies.values(), *self.others]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def name(self) -> str:
        return f"{NAME}Program_{self.key[:16]}"

    def files(self) -> dict[str, str]:
        """Return the files of the package; the program's text is one of them, unchanged."""
        name, identifier = self.name, str(uuid.UUID(self.key[:32]))
        project = {"name": name, "uuid": identifier, "version": "0.1.0", "deps": dict(self.dependencies)}
        return {
            "Project.toml": tomli_w.dumps(project),
            "src/program.jl": self.text,
            f"src/{name}.jl": self.template.format(name=name, package=NAME, **self.fields),
        }


def _load(main: Any, package: _Package) -> Any:
    """Load a package from the cache; raises OSError if the cache cannot be written."""
    folder, name = environments_folder() / "programs", package.name
    _write_package(folder / name, package.files())
    module = main.seval(_LOAD)(str(folder), name, os.access(folder / name, os.W_OK))
    _remove_oldest(folder)
    return module


def _write_package(package: Path, files: Mapping[str, str]) -> None:
    """Write all files at once, because another worker may compile them; mark a package that exists as used."""
    if not package.is_dir():
        package.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=package.parent, suffix=".part"))
        (part / "src").mkdir()
        for name, content in files.items():
            (part / name).write_text(content, "utf-8")
        try:
            part.rename(package)
        except OSError:  # another worker was faster
            shutil.rmtree(part)
    with suppress(PermissionError):  # a cache that a class shares
        os.utime(package)


def _remove_oldest(folder: Path) -> None:
    """Remove all packages except those that were used last. A worker that has loaded one keeps its code in memory."""
    with suppress(FileNotFoundError):  # another worker removes them
        packages = sorted(folder.iterdir(), key=lambda package: package.stat().st_mtime, reverse=True)
        for package in packages[MAX_PACKAGES:]:
            shutil.rmtree(package, ignore_errors=True)
