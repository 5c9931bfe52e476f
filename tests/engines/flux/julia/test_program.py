"""Programs as packages: their files, the cache, and its limit."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polybench.engines.flux.julia import program
from polybench.engines.flux.julia.discovery import package_project

TEXT = "using Flux\n\nconst DTYPE = Float32\n"
WORKLOAD = "PolyBench.warm_up(program)"


class Main:
    """Julia's module Main, which loads nothing."""

    def __init__(self, declared: str = "", *, fails: bool = False) -> None:
        self.loaded: list[tuple[str | bool, ...]] = []
        self.fails = fails
        self.PolyBench = SimpleNamespace(Python=SimpleNamespace(declared=lambda *_: declared))

    def seval(self, code: str) -> Callable[..., Any]:
        def load(*arguments: str | bool) -> Any:
            self.loaded.append(arguments)
            if self.fails:
                raise RuntimeError("Failed to precompile")
            return Loaded(f"module {len(self.loaded)}")

        return load


class Loaded(str):
    """The name of a module, which has a user's program."""

    __slots__ = ()
    Program = "program"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "environments_folder", lambda: tmp_path / "julia")
    return tmp_path / "julia/programs"


def test_the_package_has_the_unchanged_text(folder: Path) -> None:
    main = Main()
    assert program.load_package(main, TEXT, WORKLOAD) == "module 1"
    (package,) = folder.iterdir()
    assert main.loaded == [(str(folder), package.name, True)]
    assert (package / "src/program.jl").read_text() == TEXT
    project = tomllib.loads((package / "Project.toml").read_text())
    assert project["name"] == package.name
    assert project["deps"]["PolyBench"] == package_project()["uuid"]
    module = (package / f"src/{package.name}.jl").read_text()
    assert f"module {package.name}\n" in module
    assert f"@compile_workload {WORKLOAD}\n" in module


def test_only_another_text_or_workload_has_another_package(folder: Path) -> None:
    for text, workload in ((TEXT, WORKLOAD), (TEXT, WORKLOAD), (TEXT + " ", WORKLOAD), (TEXT, WORKLOAD + " ")):
        program.load_package(Main(), text, workload)
    uuids = [tomllib.loads((package / "Project.toml").read_text())["uuid"] for package in folder.iterdir()]
    assert len(uuids) == len(set(uuids)) == 3


def test_a_package_of_another_version_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.load_package(Main(), TEXT, WORKLOAD)
    monkeypatch.setattr(program, "_MODULE", program._MODULE + "\n")
    program.load_package(Main(), TEXT, WORKLOAD)
    assert len(list(folder.iterdir())) == 2


def test_files_of_a_package_are_not_written_again(folder: Path) -> None:
    """Julia compiles a package again if a file has another time."""
    program.load_package(Main(), TEXT, WORKLOAD)
    (package,) = folder.iterdir()
    files = [file for file in package.rglob("*") if file.is_file()]
    for file in files:
        os.utime(file, (1, 1))
    program.load_package(Main(), TEXT, WORKLOAD)
    assert [file.stat().st_mtime for file in files] == [1, 1, 1]


def test_packages_that_were_used_last_remain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_PACKAGES", 2)

    def load(text: str, time: int) -> Path:
        main = Main()
        program.load_package(main, text, WORKLOAD)
        package = folder / str(main.loaded[0][1])
        os.utime(package, (time, time))
        return package

    load("first", 1)
    load("second", 2)
    first = load("first", 3)
    third = load("third", 4)
    assert set(folder.iterdir()) == {first, third}


def test_no_package_without_a_cache(folder: Path) -> None:
    folder.parent.write_text("a file in place of the folder")
    main = Main()
    assert program.load_package(main, TEXT, WORKLOAD) is None
    assert main.loaded == []


def test_a_package_names_what_its_program_loads() -> None:
    """A project may have these packages only indirectly, where an import needs their UUIDs."""
    text = "using Lux\nusing Lux.NNlib: gelu_erf\nusing OneHotArrays\nusing NPZ\n# using Flux\n"
    deps = tomllib.loads(program._package(text, WORKLOAD).files()["Project.toml"])["deps"]
    assert deps.keys() == {"Lux", "OneHotArrays", "PolyBench", "PrecompileTools", "PythonCall"}


PATH = Path("/a/{name}/mine.jl")


def load_own(main: Main, text: str = TEXT, manifest: str = "") -> Any:
    return program.load_own_package(main, PATH, text, "PolyBench.warm_up(Program)", manifest)


def test_a_users_program_that_only_declares_is_a_package(folder: Path) -> None:
    assert load_own(main := Main("NPZ=1-2 Flux=3-4\nother.jl\nf() = 1\n")) == "program"
    (package,) = folder.iterdir()
    assert main.loaded == [(str(folder), package.name, True)]
    assert (package / "src/program.jl").read_text() == TEXT
    deps = tomllib.loads((package / "Project.toml").read_text())["deps"]
    assert (deps["NPZ"], deps["Flux"]) == ("1-2", "3-4")
    module = (package / f"src/{package.name}.jl").read_text()
    assert f'path = "{PATH}"' in module
    assert "@compile_workload PolyBench.warm_up(Program)\n" in module
    assert load_own(Main("")) is None


def test_a_users_program_has_another_package_for_other_files_or_packages(folder: Path) -> None:
    for declared, manifest in (
        ("\n", ""),
        ("\n", "newer"),
        ("\nother.jl\nf() = 1\n", ""),
        ("NPZ=1-2\n", ""),
        ("\n", ""),
    ):
        load_own(Main(declared), manifest=manifest)
    assert len(list(folder.iterdir())) == 4


def test_a_users_program_that_cannot_be_compiled_is_not_tried_again(folder: Path) -> None:
    mains = [Main("\n", fails=True), Main("\n"), Main("\n")]
    assert [load_own(main, TEXT) for main in mains[:2]] == [None, None]
    assert [len(main.loaded) for main in mains[:2]] == [1, 0]
    assert load_own(mains[2], f"{TEXT}# edited") == "program"


def test_an_included_program_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_included", {})
    main = Main()
    assert [program.include(main, text) for text in (TEXT, TEXT, "other")] == ["module 1", "module 1", "module 2"]
