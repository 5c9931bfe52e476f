"""Fixtures: a fake Julia, which is a shell script, and projects that consist of a manifest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, PROJECT
from polybench.engines.flux.julia.package import package_folder

JULIACALL = "0.9.34"
COMPLETE = {
    "Flux": "0.16.10",
    "JSON": "1.7.0",
    "PythonCall": JULIACALL,
    "PrecompileTools": "1.2.1",
    "NPZ": "0.4.3",
}

OWN = package_folder()

Make = Callable[..., str]


@pytest.fixture(autouse=True)
def no_configured_julia(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> None:
    for name in (EXECUTABLE, PROJECT, FOUND_BY):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def juliacall_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that juliacall is installed with version JULIACALL."""
    find_spec, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "juliacall" else find_spec(name))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: JULIACALL if name == "juliacall" else version(name))


@pytest.fixture
def executable(tmp_path: Path) -> Make:
    """Create an executable that prints its version, and records every call in `calls`."""

    def make(version: str = "julia version 1.10.8", then: str = "exit 0") -> str:
        file = tmp_path / "julia"
        script = f'echo "$@" >> {tmp_path}/calls\n[ "$1" = --version ] && echo "{version}" && exit 0\n{then}\n'
        file.write_text(f"#!/bin/sh\n{script}")
        file.chmod(0o755)
        return str(file)

    return make


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """Create a project with these packages, and PolyBench from a folder.

    `indirect` packages are only in the manifest. The manifest lacks the item `since`, a (field, name) of PolyBench.
    """

    def make(
        packages: dict[str, str] = COMPLETE,
        manifest: str = "Manifest.toml",
        developed: Path | None = OWN,
        indirect: tuple[str, ...] = (),
        since: tuple[str, str] | None = None,
    ) -> str:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        entries = [f'[[deps.{name}]]\nversion = "{version}"\n' for name, version in packages.items()]
        entries += [_polybench(developed, since)] if developed else []
        (folder / manifest).write_text("\n".join(entries))
        direct = [f'{name} = "the UUID of {name}"\n' for name in packages if name not in indirect]
        (folder / "Project.toml").write_text("".join(["[deps]\n", *direct]))
        return str(folder)

    return make


def _polybench(folder: Path, since: tuple[str, str] | None) -> str:
    """Return PolyBench's entry as Pkg writes it, with UUIDs of weak dependencies that the manifest lacks."""
    own = tomllib.loads((OWN / "Project.toml").read_text("utf-8"))
    if since:
        field, name = since
        del own[field][name]
    tables = {field: own[field] for field in ("weakdeps", "extensions")}
    entry = {"deps": sorted(own["deps"]), "path": str(folder)} | tables
    return tomli_w.dumps({"deps": {"PolyBench": entry}}).replace("[deps.PolyBench]", "[[deps.PolyBench]]", 1)
