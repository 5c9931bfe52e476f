"""Projects that were resolved before PolyBench had the extension for a package, so that Julia does not load it.

The worker loads the extension's file, or the configuration is unavailable. `julia/test/step_modes.jl` tests that a
step mode fails without its extension.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia.discovery import EXECUTABLE, PROJECT
from polybench.engines.flux.julia.extra_packages import LOAD_EXTENSIONS, REQUESTED_PACKAGES
from polybench.engines.flux.julia.package import package_folder
from polybench.engines.flux.lux import LuxEngine
from polybench.errors import EngineUnavailable
from tests.engines.flux.julia.conftest import COMPLETE, Make

VERSIONS = {"Lux": "1.31.4", "Mooncake": "0.5.45"}


class Main:
    """A fake of Julia's Main that records calls; loading an extension fails if it is `broken`."""

    PolyBench = SimpleNamespace(run_steps_b=None)

    def __init__(self, *, broken: bool) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self._broken = broken

    def seval(self, code: str) -> Callable[..., None]:
        def call(*arguments: str) -> None:
            self.calls.append((code, arguments))
            if code == LOAD_EXTENSIONS and self._broken:
                raise RuntimeError("LoadError: UndefVarError: `Training` not defined")

        return call


@pytest.fixture
def start(executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Main]:
    """Load an engine in a project whose manifest lacks PolyBench's extension for the package."""

    def start(engine: FluxEngine, package: str, *, broken: bool = False) -> Main:
        folder = project(COMPLETE | {package: VERSIONS[package]}, since=("extensions", f"PolyBench{package}Ext"))
        main = Main(broken=broken)
        monkeypatch.setenv(EXECUTABLE, executable())
        monkeypatch.setenv(PROJECT, folder)
        monkeypatch.setenv(REQUESTED_PACKAGES, package)
        monkeypatch.setitem(sys.modules, "juliacall", SimpleNamespace(Main=main))
        engine.load_framework()
        return main

    return start


@pytest.mark.parametrize(("engine", "package"), [(LuxEngine, "Lux"), (FluxEngine, "Mooncake")])
def test_worker_loads_the_missing_extension(engine: type[FluxEngine], package: str, start: Callable[..., Main]) -> None:
    calls = start(engine(), package).calls
    packages, polybench, extension = (
        next(index for index, (code, _) in enumerate(calls) if text in code)
        for text in (f"using Flux, {package}", "using PolyBench", LOAD_EXTENSIONS)
    )
    assert packages < polybench < extension
    (file,) = calls[extension][1]
    assert Path(file) == package_folder() / "ext" / f"PolyBench{package}Ext.jl"
    assert Path(file).is_file()


@pytest.mark.parametrize(("engine", "package"), [(LuxEngine, "Lux"), (FluxEngine, "Mooncake")])
def test_broken_extension_makes_the_configuration_unavailable(
    engine: type[FluxEngine], package: str, start: Callable[..., Main]
) -> None:
    with pytest.raises(EngineUnavailable, match="a Julia package does not load: LoadError") as missing:
        start(engine(), package, broken=True)
    assert missing.value.hint.startswith("polybench setup flux --julia ")
    assert missing.value.hint.endswith(f"--add-package {package}")
