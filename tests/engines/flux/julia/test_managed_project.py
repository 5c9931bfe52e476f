"""Copies of a project that contains PolyBench of another checkout.

If the configured project contains another checkout's PolyBench, all tests of Flux check that Julia accepts a copy.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from polybench.engines.flux.julia.discovery import Julia, check, installed, is_other_checkout
from polybench.engines.flux.julia.managed_project import is_manifest_current, use_managed_project
from polybench.engines.flux.julia.package import NAME
from polybench.errors import EngineUnavailable
from tests.engines.flux.julia.conftest import OWN, Make


def test_project_without_another_checkout_is_used_directly(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(), "a test")
    assert use_managed_project(julia) is julia


def test_copy_has_this_package_and_all_others(executable: Make, project: Make, tmp_path: Path) -> None:
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    manifest = Path(julia.project, "Manifest.toml")
    assert "PolyBenchLuxExt" in manifest.read_text()
    manifest.write_text(manifest.read_text().replace("PolyBenchLuxExt", "OldExt"))
    manifest.write_text(manifest.read_text() + '\n[[deps.Mine]]\npath = "../mine"\nuuid = "1"\n')
    Path(julia.project, "LocalPreferences.toml").write_text("[CondaPkg]\n")
    before = manifest.read_text()
    copy = use_managed_project(julia, tmp_path / "copy")
    assert copy == julia._replace(project=str(tmp_path / "copy"))
    assert not is_other_checkout(copy)
    check(copy)
    assert installed(copy).keys() == installed(julia).keys()
    entries = tomllib.loads((tmp_path / "copy" / "Manifest.toml").read_text())["deps"]
    own = tomllib.loads((OWN / "Project.toml").read_text())
    assert entries[NAME] == [
        {"path": str(OWN), "deps": sorted(own["deps"])}
        | {name: own[name] for name in ("uuid", "version", "weakdeps", "extensions")}
    ]
    assert entries["Mine"][0]["path"] == str((Path(julia.project) / ".." / "mine").resolve())
    assert (tmp_path / "copy" / "LocalPreferences.toml").read_text() == "[CondaPkg]\n"
    assert manifest.read_text() == before


def test_outdated_manifest_is_detected(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(), "a test")
    assert is_manifest_current(julia)
    assert not is_manifest_current(julia._replace(project=project(since=("weakdeps", "Lux"))))
    assert not is_manifest_current(julia._replace(project=project(since=("extensions", "PolyBenchLuxExt"))))
    assert not is_manifest_current(julia._replace(project=project(since=("deps", "SHA"))))
    assert not is_manifest_current(julia._replace(project=project(developed=None)))


def test_copy_is_reused_and_follows_the_project(executable: Make, project: Make, tmp_path: Path) -> None:
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    first = use_managed_project(julia)
    file = Path(first.project, "Manifest.toml")
    inode = file.stat().st_ino
    assert use_managed_project(julia) == first
    assert file.stat().st_ino == inode
    manifest = Path(julia.project, "Manifest.toml")
    manifest.write_text(manifest.read_text().replace("0.16.10", "0.16.11"))
    newer = manifest.rename(manifest.with_name("Manifest-v1.10.toml"))
    assert installed(use_managed_project(julia))["Flux"] == "0.16.11"
    assert not file.exists()
    newer.rename(manifest)
    assert [file.name for file in Path(use_managed_project(julia).project).glob("Manifest*")] == [manifest.name]


def test_unwritable_folder_is_unavailable(executable: Make, project: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    with pytest.raises(EngineUnavailable, match="cannot write a Julia project to"):
        use_managed_project(julia, tmp_path / "file" / "copy")
