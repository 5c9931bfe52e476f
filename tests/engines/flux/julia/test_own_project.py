"""A project that has another polybench's Julia package, and its copy that has this one's.

That Julia takes it is shown by all tests of Flux in a checkout that is not the one that was set up.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import Julia, belongs_to_another, check, installed
from polybench.engines.flux.julia.own_project import resolved_as_it_is, with_own_package
from polybench.engines.flux.julia.package import NAME
from tests.engines.flux.julia.conftest import OWN, Make


def test_a_project_that_has_this_polybenchs_package_or_none_is_taken(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(), "a test")
    assert with_own_package(julia) is julia


def test_the_copy_has_this_ones_package_and_all_others(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    manifest = Path(julia.project, "Manifest.toml")
    assert "PolyBenchLuxExt" in manifest.read_text()
    manifest.write_text(manifest.read_text().replace("PolyBenchLuxExt", "OldExt"))
    manifest.write_text(manifest.read_text() + '\n[[deps.Mine]]\npath = "../mine"\nuuid = "1"\n')
    Path(julia.project, "LocalPreferences.toml").write_text("[CondaPkg]\n")
    before = manifest.read_text()
    copy = with_own_package(julia, tmp_path / "copy")
    assert copy == julia._replace(project=str(tmp_path / "copy"))
    assert not belongs_to_another(copy)
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


def test_what_the_package_got_since_the_project_was_resolved_is_noticed(
    executable: Make, project: Make
) -> None:
    julia = Julia(executable(), project(), "a test")
    assert resolved_as_it_is(julia)
    assert not resolved_as_it_is(julia._replace(project=project(since=("weakdeps", "Lux"))))
    assert not resolved_as_it_is(julia._replace(project=project(since=("extensions", "PolyBenchLuxExt"))))
    assert not resolved_as_it_is(julia._replace(project=project(since=("deps", "SHA"))))
    assert not resolved_as_it_is(julia._replace(project=project(developed=None)))


def test_the_copy_is_kept_and_follows_the_project(executable: Make, project: Make, tmp_path: Path) -> None:
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    first = with_own_package(julia)
    file = Path(first.project, "Manifest.toml")
    written = file.stat().st_ino
    assert with_own_package(julia) == first
    assert file.stat().st_ino == written
    manifest = Path(julia.project, "Manifest.toml")
    manifest.write_text(manifest.read_text().replace("0.16.10", "0.16.11"))
    newer = manifest.rename(manifest.with_name("Manifest-v1.10.toml"))
    assert installed(with_own_package(julia))["Flux"] == "0.16.11"
    assert not file.exists()
    newer.rename(manifest)
    assert [one.name for one in Path(with_own_package(julia).project).glob("Manifest*")] == [manifest.name]


def test_where_nothing_can_be_written_it_is_unavailable(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    julia = Julia(executable(), project(developed=tmp_path / "other"), "a test")
    with pytest.raises(Unavailable, match="cannot write a Julia project to"):
        with_own_package(julia, tmp_path / "file" / "copy")
