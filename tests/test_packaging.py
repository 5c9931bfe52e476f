"""Requirements of engines in pyproject.toml; each failure names the missing line."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from polybench.engines import ENGINES, EngineSpec
from tests.frameworks import PYPROJECT, frameworks_of_engines, packages_of_frameworks

EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]


SEVERAL = {"engines.keras", "engines.shared"}
"""Packages that share frameworks: Keras runs on those of other engines."""


OLDEST = Path(__file__).with_name("minimum_versions.txt").read_text()


def _lower_bounds() -> dict[str, str]:
    extras = {name: lines for name, lines in EXTRAS.items() if name not in ("all", "dev", "test")}
    lines = [*PYPROJECT["project"]["dependencies"], *(line for one in extras.values() for line in one)]
    return dict(line.split(">=") for line in lines)


def test_minimum_versions_match_pyproject() -> None:
    pinned = dict(line.split("==") for line in OLDEST.splitlines() if "==" in line)
    bounds = _lower_bounds()
    assert set(pinned) - {"click"} == set(bounds), (
        "tests/minimum_versions.txt: one line for each package of pyproject.toml"
    )
    for name, bound in bounds.items():
        padded = re.fullmatch(rf"{re.escape(bound)}(\.0)*(\.\d+)?", pinned[name])
        assert padded, f"tests/minimum_versions.txt: {name}=={pinned[name]}, and pyproject.toml allows {bound}"


def test_a_framework_is_imported_in_one_package_only() -> None:
    spread = {module: packages for module, packages in packages_of_frameworks().items() if len(packages - SEVERAL) > 1}
    assert not spread, "import each in its engine's folder only, or require it for all of polybench"


@pytest.mark.parametrize("extra", [row.extra for row in ENGINES.values() if row.extra])
def test_every_engine_has_an_extra_that_all_includes(extra: str) -> None:
    assert EXTRAS.get(extra), f"[project.optional-dependencies]: write what installs the framework, {extra} = [...]"
    (everything,) = EXTRAS["all"]
    assert extra in everything.removeprefix("polybench-dl").strip("[]").split(","), f"add {extra} to the extra `all`"


@pytest.mark.parametrize("module", sorted(frameworks_of_engines()))
def test_mypy_skips_frameworks(module: str) -> None:
    skipped: Any = next(one for one in PYPROJECT["tool"]["mypy"]["overrides"] if "follow_imports" in one)
    own = packages_of_frameworks()[module]
    assert any(fnmatch(f"{module}.x", pattern) for pattern in skipped["module"]), (
        f'[[tool.mypy.overrides]]: add "{module}.*", which {own} imports: mypy then says the same without it'
    )


@pytest.mark.parametrize("row", [row for row in ENGINES.values() if row.extra], ids=lambda row: row.extra)
def test_an_engines_packages_are_those_of_its_extra(row: EngineSpec) -> None:
    assert row.extra is not None
    assert [one.partition(">")[0] for one in EXTRAS[row.extra]] == list(row.packages)
