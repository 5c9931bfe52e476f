"""Files of the Julia package that must agree with the Python package."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import polybench
from polybench.errors import __version__
from tests.readme import IN_JULIA, JULIA_MODELS, as_toml

ROOT = Path(__file__).parents[3]


def toml(*path: str) -> dict[str, Any]:
    return tomllib.loads(ROOT.joinpath(*path).read_text("utf-8"))


PACKAGE, TOP = toml("julia", "Project.toml"), toml("Project.toml")


@pytest.mark.parametrize("name", IN_JULIA)
def test_julia_files_agree_with_the_networks(name: str) -> None:
    assert (JULIA_MODELS / f"{name}.toml").read_text("utf-8") == as_toml(IN_JULIA[name]), "run make readme"


def test_julia_has_no_other_networks() -> None:
    assert {file.stem for file in JULIA_MODELS.iterdir()} == set(IN_JULIA)


def test_top_level_project_is_the_package_with_dependencies_of_examples() -> None:
    assert (ROOT / TOP["path"]).samefile(ROOT / "julia" / "src" / "PolyBench.jl")
    assert all(TOP[field] == PACKAGE[field] for field in ("name", "uuid", "version"))
    assert TOP["deps"] == PACKAGE["deps"] | {"NPZ": TOP["deps"]["NPZ"]}
    bounds = {name: bound for name, bound in PACKAGE["compat"].items() if name in (*PACKAGE["deps"], "julia")}
    assert TOP["compat"] == bounds | {"NPZ": TOP["compat"]["NPZ"]}


def test_every_dependency_has_a_version_bound() -> None:
    expected = {"julia", *PACKAGE["deps"], *PACKAGE["weakdeps"], *PACKAGE["extras"]}
    assert set(PACKAGE["compat"]) == expected


def test_juliapkg_has_the_bounds_of_the_package() -> None:
    found = json.loads((Path(polybench.__file__).parent / "juliapkg.json").read_text("utf-8"))
    bounds = TOP["compat"]
    for name, entry in found["packages"].items():
        assert entry == {"uuid": TOP["deps"][name], "version": bounds[name]}, name


def test_both_packages_have_the_same_version_and_license() -> None:
    assert PACKAGE["version"] == __version__
    assert (ROOT / "julia" / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
