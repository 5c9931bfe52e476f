"""The files that distinguish the code of two workers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from polybench.protocol import loaded_code

MAPPED = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 {}\n"


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("/depot/compiled/v1.10/PolyBench/abc.so", False),
        ("/depot/compiled/v1.10/PolyBenchLuxExt/abc.so", False),
        ("/depot/compiled/v1.12/PolyBenchCUDAExt/abc.so", False),
        ("/depot/compiled/v1.10/Flux/abc.so", True),
        ("/usr/lib/PolyBench/libblas.so", True),
    ],
)
def test_compiled_code_of_polybenchs_own_julia_packages_is_left_out(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPPED.format(file))
    monkeypatch.setattr(loaded_code, "_MEMORY_MAPS", maps)
    monkeypatch.setattr(loaded_code, "_stamp", lambda path: "1 2")
    assert (file in loaded_code.loaded_code()) == counts


def test_a_module_has_a_file_with_size_and_time_behind_links_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link = tmp_path / "polybench.d", tmp_path / "link"  # not a module of polybench
    folder.mkdir()
    link.symlink_to(folder)
    file = folder / "edited_module.py"
    file.write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(link))
    monkeypatch.delitem(sys.modules, "edited_module", raising=False)
    importlib.import_module("edited_module")
    before = loaded_code.loaded_code()
    assert before[str(file)] == f"6 {file.stat().st_mtime_ns}"
    file.write_text("x = 12\n")
    assert loaded_code.changed_files(before) == [str(file)]
    assert loaded_code.changed_names(before, loaded_code.loaded_code()) == [str(file)]
    file.unlink()
    assert loaded_code.changed_files(before) == []  # it may have been temporary
    assert loaded_code.describe_changes(["d", "c", "b", "a"]) == "the loaded code changed: a, b, c and 1 more"


def test_a_module_in_an_archive_has_the_stamp_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("archived_module.py", "x = 1\n")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("archived_module")
    status = archive.stat()
    assert loaded_code.loaded_code()[f"{archive}/archived_module.py"] == f"{status.st_size} {status.st_mtime_ns}"


def test_objects_that_are_no_modules_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"imports {name}")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "no_module", None)
    assert loaded_code.loaded_code()


def test_a_file_that_is_loaded_only_before_or_now_is_a_change() -> None:
    before, now = {"same": "1 1", "edited": "1 1", "gone": "1 1"}, {"same": "1 1", "edited": "1 2", "new": "1 1"}
    assert loaded_code.changed_names(before, now) == ["edited", "gone", "new"]
