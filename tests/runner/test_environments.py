"""Studies with several Python environments, each a real environment with its own interpreter."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from polybench.data import synthetic
from polybench.engines import ENGINES, EngineSpec
from polybench.planning.study_file import parse
from polybench.render import render
from polybench.schema.study import StudyDocument, from_json, to_json
from tests.environments import make_environment, site_packages, write_engine
from tests.runner.studies import run

MINIMAL: dict[str, Any] = {
    "processes": 1,
    "rounds_per_process": 1,
    "steps_per_round": 2,
    "batch_size": 8,
    "metrics": False,
}


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyDocument, Path]:
    """A study of `demo_engine`, version 1.0 in this environment and 2.0 in another one."""
    folder = tmp_path_factory.mktemp("environments")
    (folder / "here").mkdir()
    write_engine(folder / "here", "1.0")
    venv = make_environment(folder / "venv")
    write_engine(site_packages(venv), "2.0")
    with pytest.MonkeyPatch.context() as patch:
        # Last on the path, like an installed package; the folder of an environment comes first.
        interpreter = importlib.import_module("polybench.protocol.interpreter")
        own = interpreter.OWN_INTERPRETER._replace(folders=(*interpreter.OWN_INTERPRETER.folders, str(folder / "here")))
        patch.setattr("polybench.runner.workers.OWN_INTERPRETER", own)
        spec = EngineSpec("demo_engine:Engine", "", startup_seconds=1.0, copies_data=False, computes=False)
        patch.setitem(ENGINES, "demo_engine", spec)
        patch.setitem(synthetic.IMAGES, "train", 100)
        engines = ("demo_engine", "demo_engine@new", "demo_engine@new")
        document = run(*engines, env={"new": str(venv)}, baseline="demo_engine@new/cpu", **MINIMAL)
    return document, venv


def test_two_versions_of_an_engine_are_results_of_one_study(two_versions: tuple[StudyDocument, Path]) -> None:
    document, venv = two_versions
    assert [result.configuration for result in document.results] == [
        "demo_engine/cpu", "demo_engine@new/cpu", "demo_engine@new/cpu#2",
    ]  # fmt: skip
    own, other, duplicate = document.results
    assert (own.environment, other.environment, duplicate.environment) == (None, "new", "new")
    assert [result.versions["demo_engine"] for result in document.results] == ["1.0", "2.0", "2.0"]
    assert other.versions["build"]["prefix"] == str(venv)
    assert other.versions["build"]["interpreter"] == str(venv / "bin/python")
    assert own.vs_baseline is not None
    assert own.vs_baseline.baseline == "demo_engine@new/cpu"
    assert own.vs_baseline.speedup > 0
    assert {one.baseline for one in own.break_even_steps} == {"demo_engine@new/cpu", "demo_engine@new/cpu#2"}


def test_the_table_shows_the_versions_that_differ(two_versions: tuple[StudyDocument, Path]) -> None:
    text = render(two_versions[0], "table", notes=True)
    assert "\n  demo_engine: demo_engine 1.0\n" in text  # both have the same Python version, which is not shown
    assert "\n  demo_engine@new: demo_engine 2.0\n" in text


def test_a_saved_document_contains_the_environments(two_versions: tuple[StudyDocument, Path]) -> None:
    document, venv = two_versions
    assert from_json(to_json(document)).results[1].environment == "new"
    assert f'[env]\nnew = "{venv}"' in document.study
    ENGINES["demo_engine"] = ENGINES["fake"]
    try:
        assert parse(document.study, "study").env == {"new": str(venv)}
    finally:
        del ENGINES["demo_engine"]


def test_the_reference_in_another_environment_is_checked(tmp_path: Path) -> None:
    document = run("reference@other", env={"other": str(make_environment(tmp_path / "venv"))}, **MINIMAL)
    (result,) = document.results
    assert (result.status, result.parity.status) == ("ok", "pass")


def test_an_environment_without_numpy_is_unavailable_with_a_hint(tmp_path: Path) -> None:
    bare = make_environment(tmp_path / "venv", with_numpy=False)
    document = run("fake", "fake@bare", env={"bare": str(bare)}, **MINIMAL)
    own, other = document.results
    assert own.status == "ok"
    assert (other.status, other.hint) == ("unavailable", f"{bare}/bin/python -m pip install numpy")
    assert other.environment == "bare"


@pytest.mark.parametrize(
    ("engine", "reason", "packages"),
    [
        ("jax", "JAX is not installed", "jax optax"),
        ("plugin", "cannot import the engine: No module named 'plugin'", "plugin"),
    ],
)
def test_the_hint_for_a_missing_framework_names_the_environments_pip(
    engine: str, reason: str, packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "plugin", EngineSpec("plugin.engine:Engine", "", computes=False))
    venv = make_environment(tmp_path / "venv")
    (result,) = run(f"{engine}@other", env={"other": str(venv)}, **MINIMAL | {"parity": False}).results
    assert (result.status, result.reason) == ("unavailable", reason)
    assert result.hint == f"{venv}/bin/python -m pip install {packages}"
