"""What the Julia package and the Python package both have: each is the other's."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import polybench
from polybench.core.version import __version__
from tests.julia_models import FOLDER, IN_JULIA, as_toml

ROOT = Path(__file__).parents[3]


def toml(*path: str) -> dict[str, Any]:
    return tomllib.loads(ROOT.joinpath(*path).read_text("utf-8"))


PACKAGE, TOP = toml("julia", "Project.toml"), toml("Project.toml")


@pytest.mark.parametrize("name", IN_JULIA)
def test_julia_has_the_networks_of_the_table(name: str) -> None:
    assert (FOLDER / f"{name}.toml").read_text("utf-8") == as_toml(IN_JULIA[name]), (
        "write them anew: make readme"
    )


def test_julia_has_no_other_network() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(IN_JULIA)


def test_the_top_level_is_the_package_with_what_examples_need() -> None:
    assert (ROOT / TOP["path"]).samefile(ROOT / "julia" / "src" / "PolyBench.jl")
    assert all(TOP[field] == PACKAGE[field] for field in ("name", "uuid", "version"))
    assert TOP["deps"] == PACKAGE["deps"] | {"NPZ": TOP["deps"]["NPZ"]}
    bounds = {name: bound for name, bound in PACKAGE["compat"].items() if name in (*PACKAGE["deps"], "julia")}
    assert TOP["compat"] == bounds | {"NPZ": TOP["compat"]["NPZ"]}


def test_every_dependency_has_a_bound() -> None:
    wanted = {"julia", *PACKAGE["deps"], *PACKAGE["weakdeps"], *PACKAGE["extras"]}
    assert set(PACKAGE["compat"]) == wanted


def test_juliapkg_installs_within_the_packages_bounds() -> None:
    found = json.loads((Path(polybench.__file__).parent / "juliapkg.json").read_text("utf-8"))
    bounds = TOP["compat"]
    for name, wanted in found["packages"].items():
        assert wanted == {"uuid": TOP["deps"][name], "version": bounds[name]}, name


def test_both_packages_have_one_version_and_one_license() -> None:
    assert PACKAGE["version"] == __version__
    assert (ROOT / "julia" / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
