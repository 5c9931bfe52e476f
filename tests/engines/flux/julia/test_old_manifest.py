"""A project that was resolved before PolyBench had the extension for a package: Julia does not load it then.

The worker loads its file, or the cell is unavailable. That a way without its extension is no other way is for
`julia/test/ways.jl`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia.extra_packages import EXTEND, WANTED
from polybench.engines.flux.julia.finding import EXECUTABLE, PROJECT
from polybench.engines.flux.julia.package import package_folder
from polybench.engines.flux.lux import LuxEngine
from tests.engines.flux.julia.conftest import COMPLETE, Make

VERSIONS = {"Lux": "1.31.4", "Mooncake": "0.5.45"}


class Main:
    """Julia's, which notes what it is told; an extension's file fails there if that is `broken`."""

    PolyBench = SimpleNamespace(run_steps_b=None)

    def __init__(self, *, broken: bool) -> None:
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self._broken = broken

    def seval(self, code: str) -> Callable[..., None]:
        def call(*arguments: str) -> None:
            self.told.append((code, arguments))
            if code == EXTEND and self._broken:
                raise RuntimeError("LoadError: UndefVarError: `Training` not defined")

        return call


@pytest.fixture
def start(executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Main]:
    """`start(engine, package)`: load it where the manifest's PolyBench has no extension for that package."""

    def start(engine: FluxEngine, package: str, *, broken: bool = False) -> Main:
        folder = project(
            COMPLETE | {package: VERSIONS[package]}, since=("extensions", f"PolyBench{package}Ext")
        )
        main = Main(broken=broken)
        monkeypatch.setenv(EXECUTABLE, executable())
        monkeypatch.setenv(PROJECT, folder)
        monkeypatch.setenv(WANTED, package)
        monkeypatch.setitem(sys.modules, "juliacall", SimpleNamespace(Main=main))
        engine.load_framework()
        return main

    return start


@pytest.mark.parametrize(("engine", "package"), [(LuxEngine, "Lux"), (FluxEngine, "Mooncake")])
def test_the_worker_loads_the_extension_that_julia_does_not(
    engine: type[FluxEngine], package: str, start: Callable[..., Main]
) -> None:
    told = start(engine(), package).told
    packages, polybench, extension = (
        next(place for place, (code, _) in enumerate(told) if what in code)
        for what in (f"using Flux, {package}", "using PolyBench", EXTEND)
    )
    assert packages < polybench < extension
    (file,) = told[extension][1]
    assert Path(file) == package_folder() / "ext" / f"PolyBench{package}Ext.jl"
    assert Path(file).is_file()


@pytest.mark.parametrize(("engine", "package"), [(LuxEngine, "Lux"), (FluxEngine, "Mooncake")])
def test_where_it_does_not_load_the_cell_is_unavailable(
    engine: type[FluxEngine], package: str, start: Callable[..., Main]
) -> None:
    with pytest.raises(Unavailable, match="a Julia package does not load: LoadError") as missing:
        start(engine(), package, broken=True)
    assert missing.value.remedy.startswith("polybench setup flux --julia ")
    assert missing.value.remedy.endswith(f"--with {package}")
