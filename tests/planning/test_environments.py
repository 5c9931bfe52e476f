"""Environments recognized by their files, and errors for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.planning.environments import OWN_ENVIRONMENT, EnvironmentSpec, absolute_paths, resolve_environment
from polybench.planning.plan import resolve
from polybench.schema.options import Study, configuration_grid


def python_in(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").touch(mode=0o755)
    return folder


def place(engine: str, path: Path) -> EnvironmentSpec:
    (configuration,) = configuration_grid((f"{engine}@old",), ("cpu",))
    return resolve_environment(configuration, ENGINES[engine], {"old": str(path)})


def test_an_environment_is_a_folder_or_a_python(tmp_path: Path) -> None:
    python = str(python_in(tmp_path) / "bin/python")
    assert place("torch", tmp_path) == place("torch", Path(python)) == EnvironmentSpec(python=python)
    (plain,) = configuration_grid(("torch",), ("cpu",))
    assert resolve_environment(plain, ENGINES["torch"], {"old": "/nowhere"}) == OWN_ENVIRONMENT


@pytest.mark.parametrize("name", ["", "Project.toml"])
def test_a_julia_project_is_an_environment_for_flux_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "Project.toml").touch()
    assert place("flux", tmp_path / name) == EnvironmentSpec(project=str(tmp_path))
    with pytest.raises(BadInput, match=r"no bin/python" if not name else "not executable"):
        place("torch", tmp_path / name)


def test_a_folder_with_a_python_is_an_environment_for_flux(tmp_path: Path) -> None:
    assert place("flux", python_in(tmp_path)).python == str(tmp_path / "bin/python")


def test_invalid_environments_are_rejected_with_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither bin/python nor Project\.toml"):
        place("flux", tmp_path)
    with pytest.raises(BadInput, match=r"--env old=.*: not an environment for torch: the folder has no bin/python"):
        place("torch", tmp_path)
    with pytest.raises(BadInput, match=r"no such folder or file"):
        absolute_paths({"old": str(tmp_path / "none")})


def test_paths_in_a_plan_are_absolute_and_keep_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_in(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("link", "~/link"):
        plan = resolve(Study(("fake@old",), ("cpu",), env={"old": path}))
        assert plan.study.env == {"old": str(tmp_path / "link")}
