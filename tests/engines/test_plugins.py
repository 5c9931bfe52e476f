"""Engines declared by other packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench import engines as plugins
from polybench.cli import app
from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.planning.plan import resolve
from polybench.runner import doctor
from polybench.schema.options import Study

FAST = ["--data=synthetic", "--processes=1", "--rounds-per-process=1", "--steps-per-round=5", "--batch-size=16"]
TOY = """
import os

from polybench.engines import EngineSpec, Variant
from polybench.engines.fake.engine import FakeEngine

class Toy(FakeEngine):
    def __init__(self):
        super().__init__()
        assert os.environ["TOY_THREADS"] == "2"

ENGINE = EngineSpec(
    "toy_engine:Toy", "a toy", variants={"slow": Variant("twice as long")},
    environment={"TOY_THREADS": "{threads}"}, computes=False,
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
    """`install(package, module's text, **engines)`: write a distribution as an installer does."""

    def install(package: str, text: str = TOY, **engines: str) -> None:
        (site / "toy_engine.py").write_text(text)
        (information := site / f"{package.replace('-', '_')}-1.0.dist-info").mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {target}\n" for name, target in engines.items()]
        (information / "entry_points.txt").write_text("".join(["[polybench.engines]\n", *lines]))

    return install


@pytest.fixture
def run(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run polybench in an environment with those packages."""
    monkeypatch.syspath_prepend(site)
    (work := tmp_path / "work").mkdir()
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "polybench", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=work)

    return run


def test_a_plugin_engine_is_measured_like_a_built_in_one(install: Install, run: Run) -> None:
    install("toy-package", toy="toy_engine:ENGINE")
    result = run("compare", "--engines", "toy,toy+slow", "--threads", "2", *FAST, "--format", "json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert [row["configuration"] for row in document["results"]] == ["toy/cpu", "toy+slow/cpu"]
    assert document["results"][1]["step_time"]["median"] == pytest.approx(0.02, rel=0.2)
    assert run("show", "last", "--format", "json").stdout == result.stdout


def test_a_broken_plugin_is_bad_input_and_does_not_affect_other_engines(install: Install, run: Run) -> None:
    install("toy-package", "1 / 0", toy="toy_engine:ENGINE")
    result = run("compare", "--engines", "toy", "--dry-run")
    assert result.returncode == 2
    assert result.stderr == (
        "error: engine 'toy' of toy-package (entry point toy_engine:ENGINE) cannot be loaded:"
        " ZeroDivisionError: division by zero\n"
    )
    assert run("compare", "--engines", "fake", "--dry-run").returncode == 0


@pytest.fixture
def here(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install those packages for this process and its workers."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    monkeypatch.delitem(sys.modules, "toy_engine", raising=False)
    for cache in (plugins._entry_points, plugins._load):
        cache.cache_clear()
    yield
    for cache in (plugins._entry_points, plugins._load):
        cache.cache_clear()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("engines", "text", "requested", "message"),
    [
        ({"toy": "toy_engine:ENGINE"}, "import no_such_module", "toy", "No module named 'no_such_module'"),
        ({"toy": "toy_engine:ENGINES"}, TOY, "toy", "has no attribute 'ENGINES'"),
        ({"toy": "toy_engine:Toy"}, TOY, "toy", "is not a polybench.engines.EngineSpec: <class"),
        ({"toy": "nowhere"}, TOY, "toy", "No module named 'nowhere'"),
        ({"torch": "toy_engine:ENGINE"}, TOY, "torch", "declared by polybench and toy-package"),
        ({"toy": "toy_engine:ENGINE"}, TOY, "toy+slwo", "did you mean 'slow'"),
        ({"toy": "toy_engine:ENGINE"}, TOY, "tyo", "did you mean 'toy'"),
    ],
    ids=["import", "attribute", "class", "module", "clash", "variant", "name"],
)
def test_a_plugin_error_is_one_sentence(
    install: Install, engines: dict[str, str], text: str, requested: str, message: str
) -> None:
    install("toy-package", text, **engines)
    with pytest.raises(BadInput, match=re.escape(message)) as caught:
        resolve(Study(engines=(requested,)))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("here")
def test_two_packages_with_the_same_engine_name_are_rejected(install: Install) -> None:
    install("first", toy="toy_engine:ENGINE")
    install("second", toy="toy_engine:ENGINE")
    with pytest.raises(BadInput, match="engine 'toy' is declared by first and second"):
        plugins.find_engine("toy")


@pytest.mark.usefixtures("here")
def test_the_engine_list_includes_plugins_and_warns_about_broken_ones(install: Install) -> None:
    install("toy-package", toy="toy_engine:ENGINE", broken="toy_engine:NOTHING")
    listed = CliRunner().invoke(app, ["engines", "--all", "--format", "json"])
    assert [row["engine"] for row in json.loads(listed.stdout)] == [*ENGINES, "toy"]
    assert listed.stderr.startswith("warning: engine 'broken' of toy-package (entry point toy_engine:NOTHING)")


@pytest.mark.usefixtures("here")
def test_the_doctor_probes_plugins(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOY.replace("computes=False", "computes=True").replace('== "2"', "")
    install("toy-package", text, toy="toy_engine:ENGINE", broken="toy_engine:NOTHING")
    # Starting all engines takes seconds, and test_cli.py does it.
    monkeypatch.setattr(plugins, "ENGINES", {"fake": ENGINES["fake"]})
    probed = doctor.probe_engines()
    assert probed["toy"]["runs"]
    assert not probed["broken"]["runs"]
    assert probed["broken"]["reason"].startswith("engine 'broken' of toy-package")
    assert "fake" not in probed
