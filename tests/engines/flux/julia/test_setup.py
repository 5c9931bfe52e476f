"""`polybench setup flux`, with a Julia that is a shell script."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import Unavailable
from polybench.engines.flux.julia import installing
from polybench.engines.flux.julia.package import package_folder
from polybench.engines.flux.julia.remembered import recall, remember
from polybench.measuring import smoke
from tests.engines.flux.julia.conftest import COMPLETE, Make


@pytest.fixture(autouse=True)
def smoke_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = SimpleNamespace(startup=SimpleNamespace(first_step_seconds=0.5), losses=[2.3, 2.2])
    monkeypatch.setattr(smoke, "smoke_test", lambda engine: prepared)
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT", "POLYBENCH_JULIA_FOUND_BY"):
        monkeypatch.setenv(name, "")  # setup sets them: forgotten with this test


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA_PKG_SERVER", "http://127.0.0.1:9")


def setup(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["setup", "flux", *arguments])
    return result.exit_code, result.stderr


def test_a_given_julia_is_precompiled_tried_and_remembered(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    julia, folder = executable(), project()
    code, said = setup("--julia", julia, "--project", folder)
    assert code == 0, said
    assert recall() == (julia, folder)
    calls = (tmp_path / "calls").read_text()
    assert "using Pkg; Pkg.precompile()" in calls
    assert f'push!(LOAD_PATH, raw"{package_folder()}"); using PolyBench' in calls
    assert "Pkg.add" not in calls
    assert "flux runs: its first step takes 0.5 s, losses 2.3000, 2.2000" in said


def test_missing_packages_are_added_with_pythoncall_in_juliacalls_version(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "require_network", lambda: None)
    folder = project({"Flux": "0.16.10", "PythonCall": "0.9.20"})
    code, said = setup("--julia", executable(), "--project", folder)
    assert code == 4  # this Pkg.add did nothing
    assert "lacks PrecompileTools" in said
    added = 'PackageSpec(name="PrecompileTools"), PackageSpec(name="PythonCall", version="0.9.34")'
    assert added in (tmp_path / "calls").read_text()
    assert recall() is None


@pytest.mark.usefixtures("no_network")
def test_missing_packages_without_a_network_are_one_line(executable: Make, project: Make) -> None:
    code, said = setup("--julia", executable(), "--project", project({}))
    assert code == 4
    assert said.strip().splitlines()[-1].startswith("flux is not set up: no network: http://127.0.0.1:9")
    assert "Traceback" not in said


@pytest.mark.usefixtures("no_network")
def test_nothing_there_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("juliapkg")
    from juliapkg import deps

    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    code, said = setup("--if-missing")
    assert code == 4
    assert said.startswith("flux is not set up: no network")
    assert len(said.splitlines()) == 1


def test_where_all_is_there_if_missing_does_nothing(executable: Make, project: Make, tmp_path: Path) -> None:
    assert setup("--julia", executable(), "--project", project())[0] == 0
    (tmp_path / "calls").unlink()
    assert setup("--if-missing") == (0, "")
    assert not (tmp_path / "calls").exists() or "Pkg" not in (tmp_path / "calls").read_text()


def test_a_julia_that_is_not_there() -> None:
    code, said = setup("--julia", "/nowhere/julia")
    assert code == 4
    assert "there is no Julia at /nowhere/julia" in said


def test_packages_that_do_not_precompile(executable: Make, project: Make) -> None:
    code, said = setup("--julia", executable(then="exit 1"), "--project", project())
    assert code == 4
    assert "the packages could not be precompiled: Julia ended with code 1" in said


@pytest.mark.usefixtures("no_network")
def test_a_remembered_julia_that_is_gone_stays_without_a_network() -> None:
    remember("/gone/julia", "/gone")
    code, said = setup()
    assert code == 4
    assert said.startswith("flux is not set up: no network")
    assert recall() == ("/gone/julia", "/gone")  # as long as there is nothing better


def test_a_remembered_julia_that_is_gone_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    juliapkg = pytest.importorskip("juliapkg")
    from juliapkg import deps

    remember("/gone/julia", "/gone")
    monkeypatch.setattr(installing, "require_network", lambda: None)
    monkeypatch.setattr(juliapkg, "resolve", lambda: None)
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: {"executable": "/found/julia"})
    assert installing.choose(None, None, print).executable == "/found/julia"
    assert recall() is None


def test_a_project_of_its_own_is_in_the_users_data(executable: Make, tmp_path: Path) -> None:
    julia = installing.choose(executable(), None, print)
    assert julia.project.endswith("polybench/julia-project")


def test_what_polybench_installs_is_what_it_needs() -> None:
    import json

    wanted = json.loads((Path(installing.__file__).parents[3] / "juliapkg.json").read_text())["packages"]
    assert set(COMPLETE) - {"PythonCall"} <= set(wanted)


def test_juliapkgs_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    juliapkg = pytest.importorskip("juliapkg")
    from juliapkg import deps

    def fails() -> None:
        raise ValueError("no Julia for this machine\nmore")

    monkeypatch.setattr(installing, "require_network", lambda: None)
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    monkeypatch.setattr(juliapkg, "resolve", fails)
    with pytest.raises(Unavailable, match=r"its packages: no Julia for this machine$"):
        installing.choose(None, None, print)
