"""Rows that other packages add to the tables of engines, models, metrics, formats and figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench import plugins
from polybench.api.options import build_study
from polybench.cli import app
from polybench.engines import ENGINES, EngineSpec
from polybench.errors import BadInput
from polybench.figures import FIGURES
from polybench.html_report.page import figure_views
from polybench.networks import MODELS, find_model
from polybench.planning.plan import resolve
from polybench.plugins import PluginWarning, Registry
from polybench.render import FORMATS
from polybench.runner import doctor
from polybench.schema.metrics import METRICS, select_metrics
from polybench.schema.options import Study
from polybench.storage.store import Store
from tests.commands import invoke, printed
from tests.factories import typical_study
from tests.log_of import save_document

FAST = ["--data=synthetic", "--processes=1", "--rounds-per-process=1", "--steps-per-round=5", "--batch-size=16"]
FAST += ["--wait-idle=0"]
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

EXTENSIONS = """
import msgspec

from polybench.figures import FigureSpec
from polybench.figures.figure import Figure
from polybench.networks.keras_examples import MNIST_MLP
from polybench.render import FormatSpec
from polybench.schema.metrics import Metric

MODEL = msgspec.structs.replace(MNIST_MLP, name="toy", summary="a toy")
METRIC = Metric("toy", "s", lambda result: 3 * result.step_time.mean if result.step_time else None, groups=("speed",))
FORMAT = FormatSpec("toy_engine:render", "table", "a toy")
FIGURE = FigureSpec("toy_engine:draw", "study", "a toy")

def render(table):
    return f"toy of {len(table.rows)} rows\\n"

def draw(study):
    return Figure(f"toy of {study.id}", "", [{"x": [1], "y": [2]}], {}, 200)
"""
TABLES = {"model": MODELS, "metric": METRICS, "format": FORMATS, "figure": FIGURES, "engine": ENGINES}

Install = Callable[..., None]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (folder := tmp_path / "site").mkdir()
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """`install(package, module's text, kind, **rows)`: write a distribution as an installer does."""

    def install(package: str, text: str = TOY, kind: str = "engine", **rows: str) -> None:
        (site / "toy_engine.py").write_text(text)
        (information := site / f"{package.replace('-', '_')}-1.0.dist-info").mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {target}\n" for name, target in rows.items()]
        (information / "entry_points.txt").write_text("".join([f"[polybench.{kind}s]\n", *lines]))

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
        ENGINES.find("toy")


@pytest.mark.usefixtures("here")
def test_the_engine_list_includes_plugins_and_warns_about_broken_ones(install: Install) -> None:
    install("toy-package", toy="toy_engine:ENGINE", broken="toy_engine:NOTHING")
    with pytest.warns(PluginWarning, match=r"engine 'broken' of toy-package \(entry point toy_engine:NOTHING\)"):
        listed = CliRunner().invoke(app, ["engines", "--all", "--format", "json"])
    assert [row["engine"] for row in json.loads(listed.stdout)] == [*ENGINES, "toy", "faulty"]


@pytest.mark.usefixtures("here")
def test_the_doctor_probes_plugins(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOY.replace("computes=False", "computes=True").replace('== "2"', "")
    install("toy-package", text, toy="toy_engine:ENGINE", broken="toy_engine:NOTHING")
    # Starting all engines takes seconds, and test_cli.py does it.
    (few := Registry("engine", EngineSpec))["fake"] = ENGINES["fake"]
    monkeypatch.setattr(doctor, "ENGINES", few)
    probed = dict(doctor.probe_engines())
    assert probed["toy"]["runs"]
    assert not probed["broken"]["runs"]
    assert probed["broken"]["reason"].startswith("engine 'broken' of toy-package")
    assert "fake" not in probed


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Save a study, and return its ID."""
    monkeypatch.setenv("POLYBENCH_RESULTS", str(tmp_path / "results"))
    save_document(Store(tmp_path / "results"), study := typical_study())
    return study.id


@pytest.mark.usefixtures("here")
def test_a_plugin_model_is_listed_and_its_studies_contain_it(install: Install, tmp_path: Path) -> None:
    install("toy-package", EXTENSIONS, "model", toy="toy_engine:MODEL")
    assert "toy" in [row["model"] for row in json.loads(printed("models", "--format", "json"))]
    (tmp_path / "study.toml").write_text('engines = ["fake"]\nmodel = "toy"\n')
    assert "\ntoy~" in f"\n{invoke('run', tmp_path / 'study.toml', '--dry-run').stderr}"
    study = json.loads(printed("compare", "--engines=fake", "--model=toy", *FAST, "--format=json", "--no-save"))
    assert re.fullmatch(r"toy~[0-9a-f]{8}", study["settings"]["model"])
    assert 'summary = "a toy"' in study["study"]  # `run ID` works without the package
    assert build_study({"model": "toy"}).model.name == study["settings"]["model"]


@pytest.mark.usefixtures("here")
def test_a_plugin_metric_is_a_column(install: Install, saved: str) -> None:
    install("toy-package", EXTENSIONS, "metric", toy="toy_engine:METRIC")
    assert "toy" in [row["column"] for row in json.loads(printed("columns", "--format", "json"))]
    header, *lines = printed("show", saved, "--columns", "step_time,toy", "--format", "csv").splitlines()
    step_time, toy = (header.split(",").index(f"{name} [s]") for name in ("step_time", "toy"))
    measured = [line.split(",") for line in lines if line.split(",")[toy]]
    assert measured
    assert all(float(line[toy]) == pytest.approx(3 * float(line[step_time])) for line in measured)
    assert "toy [s]" in printed("show", saved, "--format", "csv")
    assert "toy" in {metric.name for metric in select_metrics(["speed"])} - {
        one.name for one in select_metrics(["memory"])
    }


@pytest.mark.usefixtures("here")
def test_a_plugin_format_and_a_plugin_figure_show_a_study(install: Install, saved: str, tmp_path: Path) -> None:
    install("toy-formats", EXTENSIONS, "format", toy="toy_engine:FORMAT")
    install("toy-figures", EXTENSIONS, "figure", toy="toy_engine:FIGURE")
    study = typical_study()
    assert printed("show", saved, "--format", "toy") == "toy of 3 rows\n"
    assert "toy" in [view.name for view in figure_views({"study": study}, "s")]
    pytest.importorskip("plotly")
    printed("plot", saved, "--figure", "toy", "-o", tmp_path / "toy.html")
    assert f"toy of {saved}" in (tmp_path / "toy.html").read_text()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", TABLES)
def test_errors_of_plugin_rows_name_the_package(install: Install, kind: str) -> None:
    table = TABLES[kind]
    taken = next(iter(table))
    install("toy-package", "1 / 0", kind, broken="toy_engine:ROW", **{taken: "toy_engine:ROW"})
    origin = rf"{kind} 'broken' of toy-package \(entry point toy_engine:ROW\)"
    with pytest.raises(BadInput, match=f"{origin} cannot be loaded: ZeroDivisionError: division by zero"):
        table.find("broken")
    with pytest.raises(
        BadInput, match=rf"{kind} '{taken}' is declared by polybench and toy-package: .*polybench\.{kind}s"
    ):
        table.find(taken)
    with pytest.raises(BadInput, match="did you mean 'broken'"):
        table.find("brokn")
    with pytest.warns(PluginWarning) as warned:
        rows = table.rows()
    assert [name for name in rows if name != "faulty"] == [name for name in table if name != taken]
    assert len(warned) == 2


@pytest.mark.usefixtures("here")
def test_a_row_of_another_name_or_type_is_rejected(install: Install) -> None:
    install("toy-package", EXTENSIONS, "model", other="toy_engine:MODEL", metric="toy_engine:METRIC")
    with pytest.raises(BadInput, match="has the name 'toy': expected the name of its entry point"):
        find_model("other")
    with pytest.raises(BadInput, match=r"is not a polybench\.networks\.model\.Model"):
        find_model("metric")


@pytest.mark.parametrize(
    ("kind", "row", "arguments"),
    [
        ("format", "FORMAT", ["show", "last", "--format", "toy"]),
        ("metric", "METRIC", ["show", "last", "--columns", "toy"]),
        ("figure", "FIGURE", ["plot", "last", "--figure", "toy", "-o", "toy.html"]),
    ],
)
def test_a_plugin_that_fails_is_named_without_a_traceback(
    install: Install, run: Run, saved: str, kind: str, row: str, arguments: list[str]
) -> None:
    failing = EXTENSIONS.replace("lambda result: 3 *", "lambda result: [] *").replace(
        "):\n    return", "):\n    return 1 / 0,"
    )
    install("toy-package", failing, kind, toy=f"toy_engine:{row}")
    result = run(*arguments)
    assert result.returncode == 1
    assert re.fullmatch(
        r"error: toy-package failed: \w+Error: .* \(.*toy_engine\.py, line \d+\): repair or uninstall the package\n",
        result.stderr,
    )


def test_a_warning_about_a_broken_plugin_is_one_line(install: Install, run: Run) -> None:
    install("toy-package", "1 / 0", "metric", toy="toy_engine:METRIC")
    result = run("columns", "--format", "json")
    assert result.returncode == 0
    assert re.fullmatch(
        r"warning: metric 'toy' of toy-package .*: ZeroDivisionError: division by zero\n", result.stderr
    )


def test_help_reads_no_plugin(install: Install, run: Run) -> None:
    install("toy-package", "raise SystemExit(9)", "format", toy="toy_engine:FORMAT")
    assert run("show", "--help").returncode == 0


@pytest.mark.usefixtures("here")
def test_a_bug_in_polybench_is_not_blamed_on_a_plugin(install: Install) -> None:
    install("toy-package", toy="toy_engine:ENGINE")
    with pytest.raises(ValueError, match="own bug") as caught:
        raise ValueError("own bug")
    assert plugins.blame(caught.value) is None
