"""Every example runs, with tiny settings."""

from __future__ import annotations

import math
import re
import runpy
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data import synthetic
from polybench.engines import ENGINES
from polybench.networks import MODELS, find_model
from polybench.planning.study_file import REFERENCES, published_numbers, read
from polybench.schema import units
from polybench.schema.options import merge_prices
from polybench.schema.study import from_json
from tests import small_datasets

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(path for path in EXAMPLES.glob("*.toml") if path.name not in (REFERENCES, "my_net.toml"))
TABLES = {path.name: tomllib.loads(path.read_text("utf-8")) for path in FILES}
STUDIES = [name for name, table in TABLES.items() if "sweep" not in table]
SWEEPS = [name for name in TABLES if name not in STUDIES]
REAL = "flux_tutorial.toml"
"""The example that a real engine trains; the others use the engine `fake`."""
TINY = {
    "devices": ["cpu"],
    "data": "synthetic",
    "batch_size": 8,
    "threads": 1,
    "processes": 1,
    "rounds_per_process": 1,
    "steps_per_round": 2,
}


@pytest.mark.parametrize("name", STUDIES)
def test_study_files_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a study from its file, with tiny settings."""
    table = TABLES[name]
    # Fewer large images take the same memory.
    room = math.prod(find_model(table["model"]).input_shape) // math.prod(MODELS["lenet"].input_shape)
    monkeypatch.setitem(synthetic.IMAGES, "train", 64 * max(1, room))
    assert table["engines"][:3] == ["flux", "torch", "tf"]
    if name == REAL:
        pytest.importorskip("torch", reason="torch is not installed")
    tiny = TINY | {"engines": ["torch"] if name == REAL else ["fake"]}
    # Reading the file checks the original; the tiny copy needs the references next to it.
    planned = CliRunner().invoke(app, ["run", str(EXAMPLES / name), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    prices = {device: price for device, price in table.get("prices", {}).items() if device == "cpu"}
    (tmp_path / name).write_text(tomli_w.dumps(table | tiny | {"prices": prices}), "utf-8")
    shutil.copy(EXAMPLES / REFERENCES, tmp_path)
    run = CliRunner().invoke(app, ["run", str(tmp_path / name), "--no-save", "--quiet", "--format", "json"])
    assert run.exit_code == 0, run.output
    document = from_json(run.stdout.encode())
    assert document.title == table["title"]
    assert bool(document.published) == ("published" in table)
    assert document.settings.model == table["model"]
    assert document.results[0].is_measured
    assert document.results[0].parity.status == ("pass" if name == REAL else "skipped")


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_files_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan all points, and measure the smallest and the largest."""
    table = TABLES[name]
    assert table["engines"][:3] == ["flux", "torch", "tf"]
    monkeypatch.setitem(
        synthetic.IMAGES, "train", 4096
    )  # 4 images of 128 x 128 take the memory of 64 images of 32 x 32
    planned = CliRunner().invoke(app, ["run", str(EXAMPLES / name), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    points = math.prod(len(several) for several in table["sweep"].values())
    assert planned.stdout.count("flux/cpu\n") == points
    (axis, values), *others = table["sweep"].items()
    ends = {axis: [values[0], values[-1]]} | {other: several[:1] for other, several in others}
    (tmp_path / name).write_text(tomli_w.dumps(table | TINY | {"engines": ["fake"], "sweep": ends}), "utf-8")
    shutil.copy(EXAMPLES / REFERENCES, tmp_path)
    run = CliRunner().invoke(app, ["run", str(tmp_path / name), "--no-save", "--quiet", "--published"])
    assert run.exit_code == 0, run.output
    heading, rest = run.stdout.split("\n", 1)
    assert heading == table["title"]
    rows, _, authors = rest.partition("published (not measured here)")
    assert rows.count("fake/cpu  ") == (2 if others else 1)  # a row per point, or a grid
    assert others or all(units.format_axis_value(axis, value) in rows for value in ends[axis])
    for number in published_numbers(EXAMPLES / REFERENCES, table["published"]) if "published" in table else ():
        assert number.hardware in authors


CLOUD = sorted((EXAMPLES / "cloud_2017").glob("*.toml"))


@pytest.mark.parametrize("path", CLOUD, ids=lambda path: path.stem)
def test_the_workloads_of_2017_can_be_planned(path: Path) -> None:
    """Plan all points and check their prices; other tests run such a file."""
    table = tomllib.loads(path.read_text("utf-8"))
    model = find_model(table["model"])
    assert table["batch_size"] == model.batch_size
    assert table["prices"] == tomllib.loads(CLOUD[0].read_text("utf-8"))["prices"]
    assert all(merge_prices(table["prices"], number) for number in table["sweep"]["threads"])
    planned = CliRunner().invoke(app, ["run", str(path), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.count("flux/cpu\n") == len(table["sweep"]["threads"])


def test_there_are_six_workloads_of_2017() -> None:
    assert len(CLOUD) == 6
    published = read(EXAMPLES / "cloud_2017" / "keras_cnn.toml").metadata.published
    assert published == published_numbers(EXAMPLES / REFERENCES, "tf-cloud-2017")


def test_every_publication_has_a_study() -> None:
    publications = tomllib.loads((EXAMPLES / REFERENCES).read_text("utf-8"))
    assert {table["published"] for table in TABLES.values() if "published" in table} == set(publications)
    for name in publications:
        assert published_numbers(EXAMPLES / REFERENCES, name)


def test_published_configurations_exist() -> None:
    """Check that published configurations and networks exist, and that a study uses them."""
    for name in tomllib.loads((EXAMPLES / REFERENCES).read_text("utf-8")):
        compared = [number for number in published_numbers(EXAMPLES / REFERENCES, name) if number.configuration]
        assert compared, name
        for number in compared:
            engine, device = (number.configuration or "").split("/")
            assert device in ("cpu", "cuda")
            assert engine.partition("+")[0] in ENGINES
            assert find_model(number.model or "")


def test_a_step_time_is_shown_next_to_its_authors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `small_vgg.toml` with a small network and an installed engine."""
    numbers = (EXAMPLES / REFERENCES).read_text("utf-8").replace("tf/cpu", "fake/cpu")
    numbers = numbers.replace('model = "small-vgg"\nbatch_size = 64', 'model = "lenet"\nbatch_size = 8')
    (tmp_path / REFERENCES).write_text(numbers, "utf-8")
    table = TABLES["small_vgg.toml"] | TINY | {"engines": ["fake"], "model": "lenet", "augment": False}
    (tmp_path / "study.toml").write_text(tomli_w.dumps(table), "utf-8")
    monkeypatch.setitem(synthetic.IMAGES, "train", 64)
    command = ["run", str(tmp_path / "study.toml"), "--no-save", "--published"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    (step,) = (line for line in run.stdout.splitlines() if "time a step" in line and "Ryzen" in line)
    (epoch,) = (line for line in run.stdout.splitlines() if "153 steps" in line and "Ryzen" in line)
    assert re.search(r"fake/cpu [\d.]+ ms +[\d,.]+ times as long$", step), run.stdout
    assert re.search(r"fake/cpu [\d.]+ m?s +[\d,.]+ times as long$", epoch), run.stdout


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = small_datasets.cifar_folder(tmp_path, 800)  # an epoch of all synthetic images takes 614 MB
    program = str(EXAMPLES / "compare_in_python.py")
    monkeypatch.setattr(sys, "argv", [program, str(data), "fake", "fake+slow"])
    runpy.run_path(program, run_name="__main__")
    output = capsys.readouterr().out
    assert output.splitlines()[-1].startswith("fake+slow/cpu")
    assert "times the baseline" in output


def test_the_nnlib_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Use small images, because the reference computes each layer's input."""
    monkeypatch.setitem(synthetic.IMAGES, "train", 4096)  # fewer images of the layer's own size
    program = str(tmp_path / "nnlib_conv.py")
    text = (EXAMPLES / "nnlib_conv.py").read_text("utf-8")
    Path(program).write_text(re.sub(r" on \d+x\d+", " on 14x14", text), "utf-8")
    monkeypatch.setattr(sys, "argv", [program, "fake", "fake+slow"])
    runpy.run_path(program, run_name="__main__")
    output = capsys.readouterr().out
    _, *lines = output.splitlines()
    assert len(lines) == 4
    assert all(re.search(r"ratio [\d.]+ .* ratio (1\.9|2\.[01])$", line) for line in lines), output
