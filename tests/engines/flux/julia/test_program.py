"""Programs as packages: their files, the cache, and its limit."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench.engines.flux.julia import program
from polybench.engines.flux.julia.discovery import package_project

TEXT = "using Flux\n\nconst DTYPE = Float32\n"
WORKLOAD = "PolyBench.warm_up(program)"


class Main:
    """Julia's module Main, which loads nothing."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str | bool, ...]] = []

    def seval(self, code: str) -> Callable[..., str]:
        def load(*arguments: str | bool) -> str:
            self.loaded.append(arguments)
            return f"module {len(self.loaded)}"

        return load


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
    deps = tomllib.loads(program._package_files(text, WORKLOAD)["Project.toml"])["deps"]
    assert deps.keys() == {"Lux", "OneHotArrays", "PolyBench", "PrecompileTools", "PythonCall"}


def test_an_included_program_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_included", {})
    main = Main()
    assert [program.include(main, text) for text in (TEXT, TEXT, "other")] == ["module 1", "module 1", "module 2"]
