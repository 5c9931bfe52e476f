"""Engines that other packages declare."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.engines import ENGINES, installed
from polybench.measuring import doctor
from polybench.planning.plan import resolve

FAST = ["--data", "synthetic", "--processes", "1", "--rounds", "1", "--steps", "5", "--batch-size", "16"]
TOY = """
from polybench.engines import EngineRow, Variant
from polybench.engines.fake.engine import FakeEngine

class Toy(FakeEngine):
    def load_framework(self):
        import os
        assert os.environ["TOY_THREADS"] == "2"

ROW = EngineRow(
    "toy_engine:Toy", "a toy", variants={"slow": Variant("twice as long")},
    environment={"TOY_THREADS": "{threads}"}, does_arithmetic=False,
)
"""

Install = Callable[..., None]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (folder := tmp_path / "site").mkdir()
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """`install(package, module's text, **engines)`: as an installer leaves a distribution behind."""

    def install(package: str, text: str = TOY, **engines: str) -> None:
        (site / "toy_engine.py").write_text(text)
        (information := site / f"{package.replace('-', '_')}-1.0.dist-info").mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {target}\n" for name, target in engines.items()]
        (information / "entry_points.txt").write_text("".join(["[polybench.engines]\n", *lines]))

    return install


@pytest.fixture
def run(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The program, where those packages are installed."""
    monkeypatch.syspath_prepend(site)
    (work := tmp_path / "work").mkdir()
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "polybench", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=work)

    return run


def test_an_installed_engine_is_measured_like_any_other(install: Install, run: Run) -> None:
    install("toy-package", toy="toy_engine:ROW")
    result = run("compare", "--engines", "toy,toy+slow", "--threads", "2", *FAST, "--format", "json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert [row["cell"] for row in document["results"]] == ["toy/cpu", "toy+slow/cpu"]
    assert document["results"][1]["step_seconds"]["median"] == pytest.approx(0.02, rel=0.2)
    assert run("show", "last", "--format", "json").stdout == result.stdout


def test_one_that_cannot_be_loaded_is_bad_input_and_concerns_nobody_else(install: Install, run: Run) -> None:
    install("toy-package", "1 / 0", toy="toy_engine:ROW")
    result = run("compare", "--engines", "toy", "--dry-run")
    assert result.returncode == 2
    assert result.stderr == (
        "error: engine 'toy' of toy-package (entry point toy_engine:ROW) cannot be loaded:"
        " ZeroDivisionError: division by zero\n"
    )
    assert run("compare", "--engines", "fake", "--dry-run").returncode == 0


@pytest.fixture
def here(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those packages are installed for this process too, and its workers."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    monkeypatch.delitem(sys.modules, "toy_engine", raising=False)
    for cache in (installed._declared, installed._loaded):
        cache.cache_clear()
    yield
    for cache in (installed._declared, installed._loaded):
        cache.cache_clear()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("engines", "text", "asked", "message"),
    [
        ({"toy": "toy_engine:ROW"}, "import no_such_module", "toy", "No module named 'no_such_module'"),
        ({"toy": "toy_engine:ROE"}, TOY, "toy", "has no attribute 'ROE'"),
        ({"toy": "toy_engine:Toy"}, TOY, "toy", "is no polybench.engines.EngineRow: <class"),
        ({"toy": "nowhere"}, TOY, "toy", "No module named 'nowhere'"),
        ({"torch": "toy_engine:ROW"}, TOY, "torch", "declared by polybench and toy-package"),
        ({"toy": "toy_engine:ROW"}, TOY, "toy+slwo", "did you mean 'slow'"),
        ({"toy": "toy_engine:ROW"}, TOY, "tyo", "did you mean 'toy'"),
    ],
    ids=["import", "attribute", "class", "module", "clash", "variant", "name"],
)
def test_what_is_wrong_is_one_clear_sentence(
    install: Install, engines: dict[str, str], text: str, asked: str, message: str
) -> None:
    install("toy-package", text, **engines)
    with pytest.raises(BadInput, match=re.escape(message)) as caught:
        resolve(Study(engines=(asked,)))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("here")
def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("first", toy="toy_engine:ROW")
    install("second", toy="toy_engine:ROW")
    with pytest.raises(BadInput, match="engine 'toy' is declared by first and second"):
        installed.find_engine("toy")


@pytest.mark.usefixtures("here")
def test_lists_have_what_is_installed_and_tell_of_what_cannot_be_loaded(install: Install) -> None:
    install("toy-package", toy="toy_engine:ROW", broken="toy_engine:NOTHING")
    listed = CliRunner().invoke(app, ["engines", "--format", "json"])
    assert [row["engine"] for row in json.loads(listed.stdout)] == [*ENGINES, "toy"]
    assert listed.stderr.startswith(
        "warning: engine 'broken' of toy-package (entry point toy_engine:NOTHING)"
    )


@pytest.mark.usefixtures("here")
def test_the_doctor_probes_what_is_installed(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOY.replace("does_arithmetic=False", "does_arithmetic=True").replace('== "2"', "")
    install("toy-package", text, toy="toy_engine:ROW", broken="toy_engine:NOTHING")
    # To start all the others takes seconds, and is test_cli.py's.
    monkeypatch.setattr(installed, "ENGINES", {"fake": ENGINES["fake"]})
    found = doctor.engines()
    assert found["toy"]["runs"]
    assert not found["broken"]["runs"]
    assert found["broken"]["reason"].startswith("engine 'broken' of toy-package")
    assert "fake" not in found
