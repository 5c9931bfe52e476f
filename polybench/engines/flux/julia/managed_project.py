"""Copies a Julia project that contains PolyBench of another checkout, and replaces PolyBench by this checkout's.

Several checkouts may share a project, which contains the PolyBench of only one. Julia searches the dependencies
of a package only in the environment that contains the package (`stopenv` in its base/loading.jl). So adding the
package's own folder to the load path is not enough: it has no manifest.
"""

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

from polybench.engines.flux.julia.discovery import Julia, is_other_checkout, manifest, manifest_file
from polybench.engines.flux.julia.package import NAME, package_folder
from polybench.errors import EngineUnavailable

_COPIED = ("Project.toml", "JuliaProject.toml", "LocalPreferences.toml", "JuliaLocalPreferences.toml")
_PATH = re.compile(r'^path = (".*")$', re.MULTILINE)
_PACKAGE = re.compile(rf"^\[\[deps\.{NAME}\]\]$.*?(?=^\[\[|\Z)", re.MULTILINE | re.DOTALL)
"""PolyBench's entry in a manifest, up to the next entry."""


def use_managed_project(julia: Julia, folder: Path | None = None) -> Julia:
    """Return the same Julia with a copy of its project, if its project contains PolyBench of another checkout.

    Args:
        julia: a Julia that passed `check`.
        folder: folder of the copy; by default a cache folder that depends on project and package, because
            Julia caches compiled code by project.

    Raises:
        EngineUnavailable: the copy cannot be written.
    """
    if not is_other_checkout(julia):
        return julia
    folder = folder or _managed_folder(julia)
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


def is_manifest_current(julia: Julia) -> bool:
    """True if the manifest's entry of PolyBench agrees with the current Project.toml.

    Julia reads dependencies and extensions from the manifest only, which may have been resolved earlier.
    """
    found, expected = manifest(julia).get(NAME, {}), _entry()
    return all(set(found.get(field, ())) == set(expected[field]) for field in ("deps", "weakdeps", "extensions"))


def _managed_folder(julia: Julia) -> Path:
    key = hashlib.sha256(f"{Path(julia.project).resolve()}\0{package_folder()}".encode()).hexdigest()
    return platformdirs.user_cache_path("polybench") / "julia" / key[:16]


def _files(julia: Julia) -> dict[str, bytes]:
    project = Path(julia.project)
    files = {name: (project / name).read_bytes() for name in _COPIED if (project / name).is_file()}
    file = manifest_file(julia)
    assert file is not None  # it contains the other checkout's package
    return files | {file.name: _manifest(file.read_text("utf-8"), project).encode()}


def _absolute(project: Path, path: str) -> str:
    return f"path = {json.dumps(str((project / path).resolve()), ensure_ascii=False)}"


def _manifest(text: str, project: Path) -> str:
    """Replace only PolyBench's entry and make paths absolute, because Julia's loader parses no other TOML format."""
    text = _PATH.sub(lambda found: _absolute(project, json.loads(found[1])), text)
    block = tomli_w.dumps({"deps": {NAME: _entry()}}).replace(f"[deps.{NAME}]", f"[[deps.{NAME}]]", 1)
    return _PACKAGE.sub(lambda _: block, text)


def _entry() -> dict[str, Any]:
    """Return the manifest entry of this checkout's package."""
    project = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    copied = {field: project[field] for field in ("uuid", "version", "weakdeps", "extensions")}
    return {"path": str(package_folder()), "deps": sorted(project["deps"])} | copied


def _write(file: Path, content: bytes) -> None:
    """Write the file atomically, because another worker may read it, unless the content is unchanged."""
    if file.is_file() and file.read_bytes() == content:
        return
    descriptor, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "wb") as new:
        new.write(content)
    Path(name).replace(file)
