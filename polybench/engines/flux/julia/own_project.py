"""A project whose PolyBench is this polybench's, where the one that is set up has it from another.

Several checkouts may share a project, and one of them is developed in it. Julia looks for what a package
needs no further than in the environment in which it found the package (`stopenv` in its base/loading.jl), so
the package's own folder cannot be put before the project: there is no manifest in it.
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

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import Julia, belongs_to_another, manifest, manifest_file
from polybench.engines.flux.julia.package import NAME, package_folder

_COPIED = ("Project.toml", "JuliaProject.toml", "LocalPreferences.toml", "JuliaLocalPreferences.toml")
_PATH = re.compile(r'^path = (".*")$', re.MULTILINE)
_PACKAGE = re.compile(rf"^\[\[deps\.{NAME}\]\]$.*?(?=^\[\[|\Z)", re.MULTILINE | re.DOTALL)
"""Its entry, up to the next one."""


def with_own_package(julia: Julia, folder: Path | None = None) -> Julia:
    """The same Julia in a copy of its project that has this polybench's package, if it has another's.

    Args:
        julia: as it was found, and checked.
        folder: for the copy; by default one in the cache, the same for the same project and package, since
            Julia keeps what it compiles by project.

    Raises:
        Unavailable: the copy cannot be written.
    """
    if not belongs_to_another(julia):
        return julia
    folder = folder or _kept(julia)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = _files(julia)
        for name, content in files.items():
            _write(folder / name, content)
        for gone in {file for file in folder.glob("*.toml") if file.name not in files}:
            gone.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(
            f"cannot write a Julia project to {folder}: {error.strerror}", julia.setup
        ) from error
    return julia._replace(project=str(folder))


def resolved_as_it_is(julia: Julia) -> bool:
    """Whether the manifest has of PolyBench what its Project.toml says now.

    Julia reads neither its dependencies nor its extensions from there, but from the manifest: one that was
    resolved earlier has older ones.
    """
    there, own = manifest(julia).get(NAME, {}), _entry()
    return all(set(there.get(field, ())) == set(own[field]) for field in ("deps", "weakdeps", "extensions"))


def _kept(julia: Julia) -> Path:
    key = hashlib.sha256(f"{Path(julia.project).resolve()}\0{package_folder()}".encode()).hexdigest()
    return platformdirs.user_cache_path("polybench") / "julia" / key[:16]


def _files(julia: Julia) -> dict[str, bytes]:
    project = Path(julia.project)
    files = {name: (project / name).read_bytes() for name in _COPIED if (project / name).is_file()}
    file = manifest_file(julia)
    assert file is not None  # it has another's package in it
    return files | {file.name: _manifest(file.read_text("utf-8"), project).encode()}


def _absolute(project: Path, path: str) -> str:
    return f"path = {json.dumps(str((project / path).resolve()), ensure_ascii=False)}"


def _manifest(text: str, project: Path) -> str:
    """As Julia has written it but for the package: its loader takes no other form of TOML."""
    text = _PATH.sub(lambda found: _absolute(project, json.loads(found[1])), text)
    block = tomli_w.dumps({"deps": {NAME: _entry()}}).replace(f"[deps.{NAME}]", f"[[deps.{NAME}]]", 1)
    return _PACKAGE.sub(lambda _: block, text)


def _entry() -> dict[str, Any]:
    """What a manifest has of this polybench's package."""
    own = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    copied = {field: own[field] for field in ("uuid", "version", "weakdeps", "extensions")}
    return {"path": str(package_folder()), "deps": sorted(own["deps"])} | copied


def _write(file: Path, content: bytes) -> None:
    """At once, since another worker may be reading it; and not at all where it is the same already."""
    if file.is_file() and file.read_bytes() == content:
        return
    descriptor, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "wb") as new:
        new.write(content)
    Path(name).replace(file)
