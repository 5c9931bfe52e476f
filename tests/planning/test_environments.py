"""Environments judged by their files: what is one, for whom, and what is said of what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.core.errors import BadInput
from polybench.core.spec import Study, cells
from polybench.engines import ENGINES
from polybench.planning.environments import HERE, Place, absolute, place_of
from polybench.planning.plan import resolve


def python_in(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").touch(mode=0o755)
    return folder


def place(engine: str, path: Path) -> Place:
    (cell,) = cells((f"{engine}@old",), ("cpu",))
    return place_of(cell, ENGINES[engine], {"old": str(path)})


def test_a_python_is_found_in_a_folder_or_named_itself(tmp_path: Path) -> None:
    python = str(python_in(tmp_path) / "bin/python")
    assert place("torch", tmp_path) == place("torch", Path(python)) == Place(python=python)
    (plain,) = cells(("torch",), ("cpu",))
    assert place_of(plain, ENGINES["torch"], {"old": "/nowhere"}) == HERE


@pytest.mark.parametrize("name", ["", "Project.toml"])
def test_a_julia_project_is_one_for_flux_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "Project.toml").touch()
    assert place("flux", tmp_path / name) == Place(project=str(tmp_path))
    with pytest.raises(BadInput, match=r"no bin/python" if not name else "no program"):
        place("torch", tmp_path / name)


def test_a_folder_with_a_python_is_that_for_flux_too(tmp_path: Path) -> None:
    assert place("flux", python_in(tmp_path)).python == str(tmp_path / "bin/python")


def test_what_is_none_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither bin/python nor Project\.toml"):
        place("flux", tmp_path)
    with pytest.raises(
        BadInput, match=r"--env old=.*: no environment for torch: the folder has no bin/python"
    ):
        place("torch", tmp_path)
    with pytest.raises(BadInput, match=r"there is no such folder or file"):
        absolute({"old": str(tmp_path / "none")})


def test_paths_are_absolute_in_a_plan_and_links_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_in(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    plan = resolve(Study(("fake@old",), ("cpu",), env={"old": "link"}))
    assert plan.study.env == {"old": str(tmp_path / "link")}
