"""Network files in every command, with the engine `fake`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import polybench
from polybench.api.options import build_study
from polybench.data import synthetic
from polybench.errors import BadInput
from polybench.figures.roofline import draw_peak
from polybench.networks.network_file import network_of, network_toml
from polybench.networks.toml_text import TomlText
from polybench.planning.grid import points
from polybench.planning.study_file import read, read_network
from polybench.planning.suggested_commands import command_line, measured_study
from polybench.schema.measurements import PeakDocument
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument, from_json
from tests.commands import FAST, printed, printed_json, refused
from tests.figures.documents import full_peak

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_net.toml"
MEASURE = ("compare", "--engines", "fake", "--devices", "cpu", *FAST, "--quiet", "--format", "json")


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 200)
    monkeypatch.setenv("POLYBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return shutil.copy(EXAMPLE, tmp_path / "mine.toml")


def document(*arguments: object) -> StudyDocument:
    return from_json(printed(*arguments).encode())


def test_a_study_of_a_network_file_can_be_repeated_without_the_file(file: Path) -> None:
    network = read_network(file)
    first = document(*MEASURE, "--model", file)
    assert first.settings.model == network.name
    assert first.settings.parameters == network.parameters() == 47_802
    assert first.results[0].workload.model == network.name
    assert str(file.parent) not in first.study
    assert measured_study(first).model == network
    file.unlink()
    again = document("run", "last", "--quiet", "--format", "json")
    assert again.study == first.study
    assert again.settings == first.settings
    assert network.name in printed("show", "last")
    difference = printed_json("diff", first.id, again.id)
    assert "model" not in difference["changed"]
    assert printed("models", first.id, "--format", "toml") == network_toml(network)
    assert network.name in printed("list")


def test_a_study_file_names_a_network_file_relative_to_itself(file: Path, tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    (studies / "nets").mkdir(parents=True)
    file.rename(studies / "nets" / "mine.toml")
    (studies / "study.toml").write_text("engines = ['fake']\nmodel = 'nets/mine.toml'\n[quick_overrides]\nseed = 1")
    network = read_network(studies / "nets" / "mine.toml")
    assert read(studies / "study.toml").study.model == network
    assert read(studies / "study.toml", quick=True).study.model == network
    inside = "".join(f"{line}\n" for line in network_toml(network).splitlines())
    table = inside.replace("[training]", "[model.training]")
    (studies / "inline.toml").write_text(f"engines = ['fake']\n[model]\n{table}")
    assert read(studies / "inline.toml").study.model == network
    (studies / "nets" / "mine.toml").write_text("layers = [\n]\nclasses = 1")
    with pytest.raises(BadInput, match=r"study\.toml:2: .*mine\.toml:3: classes is 1"):
        read(studies / "study.toml")


def test_models_prints_a_network_file(file: Path) -> None:
    text = printed("models", file)
    assert "stage1.2.conv1" in text
    assert "47,802 parameters" in text
    (row,) = printed_json("models", file)
    assert row["parameters"] == sum(layer["parameters"] for layer in row["layers"]) == 47_802
    assert [layer["name"] for layer in row["layers"]][:2] == ["stem", "batch_norm1"]
    network = read_network(file)
    file.write_text(printed("models", file, "--format", "toml"))
    assert read_network(file) == network
    assert "conv1" in printed("models", "lenet")
    assert "input 100 of 20,000 tokens" in printed("models", "imdb-bilstm")


def test_an_error_names_the_file_and_line(file: Path) -> None:
    file.write_text(file.read_text().replace("kernel = 1 }", "kernl = 1 }"))
    weights = ("export", "--weights", "--output", "x.npz")
    for command in (MEASURE, ("parity",), ("layers",), ("sweep",), ("overhead",), weights):
        assert f"{file}:16: unknown option of conv 'kernl'; did you mean 'kernel'" in refused(*command, "--model", file)
    assert "cannot read none.toml" in refused(*MEASURE, "--model", "none.toml")
    assert "did you mean 'lenet'" in refused("models", "lennet")
    assert "models lenet --format toml" in refused("models", "--format", "toml")
    assert "polybench models ID --format toml > mine.toml" in refused(*MEASURE, "--model", "mine~0123abcd")


def test_a_sweep_cannot_vary_what_the_file_fixes(file: Path) -> None:
    network = read_network(file)
    study = Study(engines=("fake",), devices=("cpu",), model=network)
    assert [point.study.model for point in points(study, {"batch_size": [1, 2]})] == [network, network]
    assert [point.study.parity for point in points(study, {"batch_size": [1, 2]})] == [True, False]
    for axis in ("depth", "resolution"):
        with pytest.raises(BadInput, match=f"--{axis}: the file of mine~.* fixes it; write one file per value"):
            points(study, {axis: [2, 4]})
    command = command_line("layers", study)
    assert "--model mine.toml" in command


def test_python_accepts_a_file_and_a_network(file: Path) -> None:
    options: dict[str, Any] = {"engines": ["fake"], "devices": ["cpu"], "data": "synthetic", "batch_size": 8}
    quick: dict[str, Any] = options | {"processes": 1, "rounds_per_process": 1, "steps_per_round": 3}
    network = read_network(file)
    assert polybench.compare(model=str(file), **quick).document.settings.model == network.name
    assert build_study({"model": network}).model is network
    with pytest.raises(BadInput, match="cannot read"):
        polybench.compare(model="none.toml", **quick)


def test_the_roofline_of_a_network_file_is_drawn_without_the_file(file: Path) -> None:
    network, peaks = read_network(file), full_peak()
    peaks.model, peaks.network = network.name, network
    assert msgspec.json.decode(msgspec.json.encode(peaks), type=PeakDocument) == peaks
    names = {text.partition(":")[0] for trace in draw_peak(peaks).traces for text in trace.get("hovertext", ())}
    assert {"stem", "dense1"} <= names


def test_the_guide_shows_the_example() -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "guides" / "own_network.md").read_text("utf-8")
    shown = TomlText("guide", guide.split("```toml\n")[1].split("```")[0] + "\n")
    network = read_network(EXAMPLE)
    assert network_of(shown, shown.load(), default_name="my_net") == network
    assert network.name in guide
