"""Studies in which an engine runs in several environments, each a real one with a Python of its own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from polybench.core.document.study import StudyDocument, from_json, to_json
from polybench.data import synthetic
from polybench.engines import ENGINES, EngineRow
from polybench.export.rendering import rendered
from polybench.planning.study_file import parse
from tests.environments import environment, plant, site_packages
from tests.measuring.test_study import run

FEW: dict[str, Any] = {"processes": 1, "rounds": 1, "steps": 2, "batch_size": 8, "metrics": False}


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 100)


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyDocument, Path]:
    """Of an engine whose framework, the module `planted`, is 1.0 here and 2.0 in an environment."""
    folder = tmp_path_factory.mktemp("environments")
    (folder / "here").mkdir()
    plant(folder / "here", "1.0")
    venv = environment(folder / "venv")
    plant(site_packages(venv), "2.0")
    with pytest.MonkeyPatch.context() as patch:
        # Last on the path, as an installed package is: the folder of an environment comes before it.
        interpreter = importlib.import_module("polybench.wire.interpreter")
        own = interpreter.OWN._replace(folders=(*interpreter.OWN.folders, str(folder / "here")))
        patch.setattr("polybench.measuring.environments.OWN", own)
        row = EngineRow("planted:Engine", "", start_seconds=1.0, copies_data=False, does_arithmetic=False)
        patch.setitem(ENGINES, "planted", row)
        patch.setitem(synthetic.IMAGES, "train", 100)
        engines = ("planted", "planted@new", "planted@new")
        document = run(*engines, env={"new": str(venv)}, baseline="planted@new/cpu", **FEW)
    return document, venv


def test_two_versions_stand_in_one_table(two_versions: tuple[StudyDocument, Path]) -> None:
    document, venv = two_versions
    assert [result.cell for result in document.results] == [
        "planted/cpu", "planted@new/cpu", "planted@new/cpu#2",
    ]  # fmt: skip
    here, there, again = document.results
    assert (here.environment, there.environment, again.environment) == (None, "new", "new")
    assert [result.versions["planted"] for result in document.results] == ["1.0", "2.0", "2.0"]
    assert there.versions["build"]["prefix"] == str(venv)
    assert there.versions["build"]["interpreter"] == str(venv / "bin/python")
    assert here.relative is not None
    assert here.relative.baseline == "planted@new/cpu"
    assert here.relative.speedup > 0
    assert {one.against for one in here.break_even} == {"planted@new/cpu", "planted@new/cpu#2"}


def test_the_table_says_what_is_different_about_them(two_versions: tuple[StudyDocument, Path]) -> None:
    text = rendered(two_versions[0], "table")
    assert "\n  planted: planted 1.0\n" in text  # both have the same Python
    assert "\n  planted@new: planted 2.0\n" in text


def test_the_document_is_read_again_and_its_study_repeats_it(
    two_versions: tuple[StudyDocument, Path],
) -> None:
    document, venv = two_versions
    assert from_json(to_json(document)).results[1].environment == "new"
    assert f'[env]\nnew = "{venv}"' in document.study
    ENGINES["planted"] = ENGINES["fake"]
    try:
        assert parse(document.study, "study").env == {"new": str(venv)}
    finally:
        del ENGINES["planted"]


def test_the_reference_in_an_environment_is_checked_like_any_engine(tmp_path: Path) -> None:
    document = run("reference@other", env={"other": str(environment(tmp_path / "venv"))}, **FEW)
    (result,) = document.results
    assert (result.status, result.parity.status) == ("ok", "pass")


def test_an_environment_without_numpy_is_a_row_with_the_remedy(tmp_path: Path) -> None:
    bare = environment(tmp_path / "venv", numpy_too=False)
    document = run("fake", "fake@bare", env={"bare": str(bare)}, **FEW)
    here, there = document.results
    assert here.status == "ok"
    assert (there.status, there.remedy) == ("unavailable", f"{bare}/bin/python -m pip install numpy")
    assert there.environment == "bare"


def test_a_framework_that_an_environment_lacks_is_installed_by_its_own_pip(tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv")
    (result,) = run("jax@other", env={"other": str(venv)}, **FEW | {"parity": False}).results
    assert (result.status, result.reason) == ("unavailable", "JAX is not installed")
    assert result.remedy == f"{venv}/bin/python -m pip install jax optax"


def test_an_engine_of_another_package_is_installed_by_its_own_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = EngineRow("planted.engine:Engine", "", does_arithmetic=False)
    monkeypatch.setitem(ENGINES, "planted", row)
    venv = environment(tmp_path / "venv")
    (result,) = run("planted@other", env={"other": str(venv)}, **FEW).results
    assert result.reason == "the engine does not load: No module named 'planted'"
    assert (result.status, result.remedy) == ("unavailable", f"{venv}/bin/python -m pip install planted")
