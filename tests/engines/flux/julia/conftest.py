"""Fixtures: a fake Julia, which is a shell script, and projects that consist of a project file and a manifest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from polybench.engines.flux.julia.discovery import DEPOT, EXECUTABLE, FOUND_BY, PROJECT

JULIACALL = "0.9.34"
COMPLETE = {"Flux": "0.16.10", "JSON": "1.7.0", "PythonCall": JULIACALL, "PrecompileTools": "1.2.1", "NPZ": "0.4.3"}

Make = Callable[..., str]


@pytest.fixture(autouse=True)
def no_configured_julia(monkeypatch: pytest.MonkeyPatch, own_folders: Path, tmp_path: Path) -> Iterator[None]:
    """Hide the user's Julia, and give juliapkg an empty project."""
    for name in (EXECUTABLE, PROJECT, FOUND_BY, DEPOT, "PYTHON_JULIAPKG_EXE", "PYTHON_JULIAPKG_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    if importlib.util.find_spec("juliapkg") is None:
        yield
        return
    from juliapkg.state import reset_state

    with monkeypatch.context() as context:
        context.setenv("PYTHON_JULIAPKG_PROJECT", str(tmp_path / "juliapkg"))
        reset_state()
        yield
    reset_state()


@pytest.fixture(autouse=True)
def juliacall_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that juliacall is installed with version JULIACALL."""
    find_spec, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "juliacall" else find_spec(name))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: JULIACALL if name == "juliacall" else version(name))


@pytest.fixture
def executable(tmp_path: Path) -> Make:
    """Create an executable that prints its version or its library, and records every call in `calls`."""

    def make(version: str = "julia version 1.10.8", then: str = "exit 0") -> str:
        file = tmp_path / "julia"
        file.write_text(f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case "$*" in
--version) echo "{version}"; exit 0 ;;
*Libdl*) printf '/lib/libjulia.so\\0/bin'; exit 0 ;;
esac
{then}
""")
        file.chmod(0o755)
        return str(file)

    return make


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """Create a project with these packages. `indirect` packages are only in the manifest.

    `polybench` is the path of another checkout's PolyBench in it.
    """

    def make(
        packages: dict[str, str] = COMPLETE,
        manifest: str = "Manifest.toml",
        indirect: tuple[str, ...] = (),
        polybench: Path | None = None,
        folder: str = "project",
    ) -> str:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        entries = [f'[[deps.{name}]]\nversion = "{version}"\n' for name, version in packages.items()]
        if polybench:
            extensions = '\n    [deps.PolyBench.extensions]\n    OldExt = "Lux"\n'
            entries.insert(1, f'[[deps.PolyBench]]\ndeps = ["Flux"]\npath = "{polybench}"\n{extensions}')
        (path / manifest).write_text("\n".join(entries))
        direct = [f'{name} = "the UUID of {name}"\n' for name in packages if name not in indirect]
        (path / "Project.toml").write_text("".join(["[deps]\n", *direct]))
        return str(path)

    return make
