"""Files of the Julia package that must agree with the Python package."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import polybench
from polybench.errors import __version__
from tests.readme import JULIA_MODELS, julia_models

ROOT = Path(__file__).parents[3]


def toml(*path: str) -> dict[str, Any]:
    return tomllib.loads(ROOT.joinpath(*path).read_text("utf-8"))


PACKAGE, TOP = toml("julia", "Project.toml"), toml("Project.toml")


@pytest.mark.parametrize(("name", "content"), julia_models().items())
def test_julia_files_agree_with_the_networks(name: str, content: str) -> None:
    assert (JULIA_MODELS / name).read_text("utf-8") == content, "run make readme"


def test_julia_has_no_other_networks() -> None:
    assert {file.name for file in JULIA_MODELS.iterdir()} == {*julia_models()}


def test_top_level_project_is_an_environment_with_the_package_and_what_examples_need() -> None:
    assert TOP["sources"] == {"PolyBench": {"path": "julia"}}
    deps, bounds = dict(TOP["deps"]), dict(TOP["compat"])
    assert deps.pop("PolyBench") == PACKAGE["uuid"]
    assert PACKAGE["version"].startswith(bounds.pop("PolyBench"))
    used = re.findall(r"^using ([^:\n]+)", "\n".join(file.read_text() for file in ROOT.glob("examples/*.jl")), re.M)
    assert {name for names in used for name in names.split(", ")} <= TOP["deps"].keys()
    del deps["NPZ"], bounds["NPZ"]
    assert deps == {name: PACKAGE["deps"][name] for name in deps}
    assert bounds == {name: PACKAGE["compat"][name] for name in bounds}
    assert bounds.keys() == {*deps, "julia"}


def test_every_dependency_has_a_version_bound() -> None:
    expected = {"julia", *PACKAGE["deps"], *PACKAGE["weakdeps"], *PACKAGE["extras"]}
    assert set(PACKAGE["compat"]) == expected


def test_the_package_follows_the_rules_for_automatic_registration() -> None:
    """Those of RegistryCI's AutoMerge for a new package that need no network; `test_julia_package` loads it."""
    name, folder = PACKAGE["name"], ROOT / "julia"
    assert re.fullmatch("[A-Z][A-Za-z0-9]{4,}", name)
    assert "julia" not in name.lower()
    assert UUID(PACKAGE["uuid"]).version == 4
    assert PACKAGE["version"] in {"0.0.1", "0.1.0", "1.0.0"}
    assert f"module {name}\n" in (folder / "src" / f"{name}.jl").read_text("utf-8")
    assert "Permission is hereby granted, free of charge" in (folder / "LICENSE").read_text("utf-8")
    for package, bound in PACKAGE["compat"].items():
        # Each of them has an upper bound, unlike ">= 1" and "*".
        assert re.fullmatch(r"[\^~=]?\d+(\.\d+){0,2}(, *[\^~=]?\d+(\.\d+){0,2})*", bound), package
    files = subprocess.run(
        ["git", "ls-files", "."], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert not [file for file in files if re.search(r"Manifest.*\.toml$|[^A-Za-z0-9_./-]", file)]
    assert len({file.lower() for file in files}) == len(files)


def test_juliapkg_has_the_bounds_of_the_package() -> None:
    found = json.loads((Path(polybench.__file__).parent / "juliapkg.json").read_text("utf-8"))
    assert found["julia"] == PACKAGE["compat"]["julia"]
    for name, entry in found["packages"].items():
        project = TOP if name == "NPZ" else PACKAGE
        assert entry == {"uuid": project["deps"][name], "version": project["compat"][name]}, name


def test_both_packages_have_the_same_version_and_license() -> None:
    assert PACKAGE["version"] == __version__
    assert (ROOT / "julia" / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
