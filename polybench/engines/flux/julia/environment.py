"""The environment of a Julia worker: its variables, and the Julia project with this checkout's PolyBench."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import platformdirs
import tomli_w

from polybench.engines.flux.julia import discovery
from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, NAME, PROJECT, Julia, manifest
from polybench.errors import EngineUnavailable

REQUESTED_PACKAGES = "POLYBENCH_JULIA_PACKAGES"
"""Variable with the packages that a worker should load, separated by commas."""

OPTIMIZE, OPTIMIZED = "PYTHON_JULIACALL_OPTIMIZE", "2"
"""Variable with the level of Julia's optimizations, and its default. With another, nothing is compiled in advance."""

FRAMEWORK_THREADS = "framework_threads"
"""The variant with Julia's default of one thread."""
ALL_CORES = "all_cores"
"""The variant with as many BLAS threads as Julia threads, BLAS's default."""
_BLAS = "blas"
"""Prefix of variants that set the number of BLAS threads."""

_PATH = re.compile(r'^path = (".*")$', re.MULTILINE)
_HASH = re.compile(r"^project_hash = .*\n", re.MULTILINE)
"""Pkg's hash of the project file, which gets a dependency."""
_PACKAGE = re.compile(rf"^\[\[deps\.{NAME}\]\]$.*?(?=^\[\[|\Z)", re.MULTILINE | re.DOTALL)
"""PolyBench's entry in a manifest, up to the next entry."""


def threads(study: int, variants: tuple[str, ...]) -> tuple[int, int]:
    """Return the threads of Julia and of BLAS in a study with `study` threads.

    NNlib runs one task per Julia thread, and each calls BLAS: with 2 x 2 threads on 2 cores, `lenet`'s step
    took 1.5 times as long as with 2 x 1 (batch 128; 1.4 times at 1000). With one Julia thread, the study's
    BLAS threads made no difference. Raise EngineUnavailable if several variants set the BLAS threads.
    """
    julia = 1 if FRAMEWORK_THREADS in variants else study
    requested = [int(name.removeprefix(_BLAS)) for name in variants if name.startswith(_BLAS)]
    requested += [study] if ALL_CORES in variants else []
    if len(requested) > 1:
        raise EngineUnavailable(
            f"{'+'.join(variants)} sets the BLAS threads more than once", "use one of these variants"
        )
    return julia, requested[0] if requested else 1 if julia > 1 else study


def environment(
    device: str,  # noqa: ARG001
    study_threads: int,
    variants: tuple[str, ...],
    project: str | None = None,
) -> dict[str, str]:
    """Return the variables of a worker; see `EngineSpec.environment_factory`. juliacall reads them at import."""
    try:
        julia = discovery.find() if project is None else discovery.for_project(project)
    except EngineUnavailable:
        return {}  # the worker fails with reason and hint
    julia_threads, blas_threads = map(str, threads(study_threads, variants))
    if _has_interactive_thread(julia):
        julia_threads += ",0"
    packages = discovery.packages_of(variants)
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        **julia.variables,
        **_library(julia),
        **({REQUESTED_PACKAGES: ",".join(packages)} if packages else {}),
        "JULIA_NUM_THREADS": julia_threads,
        "OPENBLAS_NUM_THREADS": blas_threads,
        "MKL_NUM_THREADS": blas_threads,
        "PYTHON_JULIACALL_THREADS": julia_threads,
        # Without this, garbage collection with several threads crashes.
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        # Julia's defaults, which packages were precompiled with; never inherited.
        OPTIMIZE: OPTIMIZED,
        "PYTHON_JULIACALL_CHECK_BOUNDS": "auto",
        "PYTHON_JULIACALL_COMPILED_MODULES": "yes",
        "PYTHON_JULIACALL_COMPILE": "yes",
        "PYTHON_JULIACALL_INLINE": "yes",
        "PYTHON_JULIACALL_STARTUP_FILE": "no",
    }


def requested_packages() -> tuple[str, ...]:
    """Return the packages that this worker should load."""
    return tuple(filter(None, os.environ.get(REQUESTED_PACKAGES, "").split(",")))


def _has_interactive_thread(julia: Julia) -> bool:
    """True if `--threads=N` adds an interactive thread, which would be the one that trains.

    This is so from Julia 1.12 on (NEWS.md: "Julia now defaults to 1 interactive thread"); 1.10 needs no ",0".
    """
    try:
        return discovery.version_of(julia) >= (1, 12)
    except EngineUnavailable:
        return False  # the worker reports the error


def _library(julia: Julia) -> dict[str, str]:
    """Return the paths of libjulia for juliacall 0.9.35 and later; without them it starts a second Julia."""
    if not (julia.library and julia.bindir and Path(julia.library).is_file() and Path(julia.bindir).is_dir()):
        return {}
    return {"PYTHON_JULIACALL_LIB": julia.library, "PYTHON_JULIACALL_BINDIR": julia.bindir}


def start_julia(julia: Julia) -> Any:
    """Start Julia in this process, a worker, in this checkout's environment; return its module Main."""
    # juliacall reads both variables at import.
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: own_environment(julia).project}
    try:
        import juliacall
    except Exception as error:
        absent = discovery.absent_packages(julia)
        reason = f"its depots lack {', '.join(absent)}" if absent else discovery.first_error_line(error)
        hint = f"set {discovery.DEPOT} to the depot that has them, then: " if absent else ""
        raise EngineUnavailable(
            f"Julia ({julia.executable}, from {julia.found_by}) does not start: {reason}", f"{hint}{julia.setup}"
        ) from error
    return juliacall.Main


def own_environment(julia: Julia, folder: Path | None = None) -> Julia:
    """Return the same Julia with this checkout's environment: the packages of its project, and this PolyBench.

    Several checkouts may share a project, so none of them adds its PolyBench to it. Julia looks up the packages
    that a package loads only in environments up to the one that contains the package (`stopenv` in its
    base/loading.jl), and the project may contain another PolyBench. So the environment repeats the entries of the
    project's manifest; it has no packages of its own. Julia also caches compiled code by project, so checkouts do
    not replace each other's.

    `julia` passed `check`. By default, the project is kept if it is already such an environment; otherwise `folder` is
    a cache folder that depends on project and package.
    """
    if folder is None and manifest(julia).get(NAME) == _entry():
        return julia  # is already such an environment
    folder = folder or environments_folder() / _key(julia)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = _files(julia)
        for name, content in files.items():
            _write(folder / name, content)
        for outdated in {file for file in folder.glob("*.toml") if file.name not in files}:
            outdated.unlink(missing_ok=True)
    except OSError as error:
        raise EngineUnavailable(f"cannot write a Julia project to {folder}: {error.strerror}", julia.setup) from error
    return julia._replace(project=str(folder))


def environments_folder() -> Path:
    """Return the folder of all checkouts' environments."""
    return platformdirs.user_cache_path("polybench") / "julia"


def _key(julia: Julia) -> str:
    return hashlib.sha256(f"{Path(julia.project).resolve()}\0{discovery.package_folder()}".encode()).hexdigest()[:16]


def _files(julia: Julia) -> dict[str, bytes]:
    preferences = ("LocalPreferences.toml", "JuliaLocalPreferences.toml")
    copied = [file for name in preferences if (file := Path(julia.project, name)).is_file()]
    project = discovery.first_file(julia.project, discovery.PROJECT_FILES)
    packages = discovery.manifest_file(julia)
    assert project is not None  # `check` has read both
    assert packages is not None
    return {file.name: file.read_bytes() for file in copied} | {
        project.name: _project(project.read_text("utf-8")).encode(),
        packages.name: _manifest(packages.read_text("utf-8"), Path(julia.project)).encode(),
    }


def _project(text: str) -> str:
    project = tomllib.loads(text)
    project.setdefault("deps", {})[NAME] = discovery.package_project()["uuid"]
    return tomli_w.dumps(project)


def _manifest(text: str, project: Path) -> str:
    """Replace PolyBench's entry and make paths absolute; keep the rest, which Julia reads only in Pkg's format."""

    def absolute(found: re.Match[str]) -> str:
        path = str((project / json.loads(found[1])).resolve())
        return f"path = {json.dumps(path, ensure_ascii=False)}"

    entry = tomli_w.dumps({"deps": {NAME: _entry()}}).replace(f"[deps.{NAME}]", f"[[deps.{NAME}]]", 1)
    text = _HASH.sub("", _PACKAGE.sub("", text))
    return f"{_PATH.sub(absolute, text).rstrip()}\n\n{entry}"


def _entry() -> dict[str, Any]:
    """Return the manifest entry of this checkout's package."""
    project = discovery.package_project()
    copied = {field: project[field] for field in ("uuid", "version", "weakdeps", "extensions")}
    return {"path": str(discovery.package_folder()), "deps": sorted(project["deps"])} | copied


def _write(file: Path, content: bytes) -> None:
    """Write the file atomically, because another worker may read it, unless the content is unchanged."""
    if file.is_file() and file.read_bytes() == content:
        return
    descriptor, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "wb") as new:
        new.write(content)
    Path(name).replace(file)
