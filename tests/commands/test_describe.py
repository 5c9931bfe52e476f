import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from polybench.cli import app
from polybench.commands.compare import compare
from polybench.core.errors import BadInput
from polybench.data import open_dataset, synthetic
from polybench.data.batches import batch_stream
from polybench.machine import cores

MY_NET = Path(__file__).parents[2] / "examples" / "my_net.toml"


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(compare)
    return lambda *arguments: CliRunner().invoke(app, ["--describe", "--devices", "cpu", *arguments])


def test_prints_each_cell_once_and_runs_nothing(run):
    result = run(
        "--engines", "torch,torch,tf+xla", "--data", "cifar10", "--steps", "30", "--batch-size", "64"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.count("# torch/cpu\n") == 1
    assert "# tf+xla/cpu\n" in result.stdout
    assert result.stdout.count("STEPS = 30\n") == 2
    assert "--batch-size 64 --steps 32 --data cifar10 " in result.stdout  # two of the steps are untimed
    assert result.stdout.count("step_seconds") == 2


def test_output_for_one_cell_is_a_program(run):
    tree = ast.parse(run("--engines", "torch", "--learning-rate", "0.5").stdout)
    assert ast.get_docstring(tree)
    assert "LEARNING_RATE = 0.5" in ast.unparse(tree)


def test_says_which_have_no_script(run):
    result = run("--engines", "reference,tf+keras_fit")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.split("\n") if line] == [
        "# reference/cpu",
        "# tf+keras_fit/cpu",
    ]
    assert "no plain script" in result.stdout


def test_says_of_a_network_file_what_there_is_instead(run):
    output = run("--engines", "torch", "--model", str(MY_NET), "--data", "synthetic").stdout
    assert "no plain script for the network my_net~" in output
    assert "written by hand, for lenet, resnet32, rosetta, imdb-bilstm" in output
    command = output.partition("pooling and ReLU: ")[2].split()
    assert command[:2] == ["polybench", "layers"]
    assert command[command.index("--model") + 1] == "my_net.toml"
    assert command[-2:] == ["--script", "FOLDER"]


def test_says_of_a_variant_no_more_than_that(run):
    output = run("--engines", "tf+keras_fit").stdout
    assert output.strip() == "# tf+keras_fit/cpu: no plain script for the variant keras_fit"


def test_says_that_synthetic_images_are_in_no_file(run):
    assert "Synthetic images" in run("--engines", "torch", "--data", "synthetic").stdout


def test_says_how_to_have_the_heap_and_the_cores(run):
    assert "the heap of polybench's workers, run it with: GLIBC_TUNABLES=" in run("--engines", "torch").stdout
    chosen = cores.choose(cores.physical_cores(), 1)[0]
    output = run("--engines", "torch,tf", "--pin", "--threads", "1").stdout
    assert output.count("# To have the heap and cores of polybench's workers, ") == 2
    assert output.count(f" taskset -c {chosen}\n") == 2


def test_bad_input(run):
    assert isinstance(run("--engines", "torhc").exception, BadInput)


def test_there_is_no_script_with_a_pipeline_yet(run):
    assert "leave out --input pipeline" in str(run("--engines", "torch", "--input", "pipeline").exception)


@pytest.fixture
def little_data(monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)


def test_a_folder_has_all_that_its_scripts_need_and_no_more(run, little_data, tmp_path):
    folder = tmp_path / "scripts"
    options = ["--data", "synthetic", "--steps", "3", "--batch-size", "8", "--threads", "1"]
    result = run(str(folder), "--engines", "torch,tf+xla,keras+torch,reference", *options)
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "torch_cpu.py", "tf+xla_cpu.py", "keras+torch_cpu.py", "START.npz", "images", "run.sh"
    }  # fmt: skip
    assert "reference/cpu: no plain script for the engine reference" in result.stdout
    assert sum(path.stat().st_size for path in (folder / "images").iterdir()) == 5 * 8 * 3073
    dataset = open_dataset("synthetic", 0, tmp_path)
    indices = batch_stream(2000, 8, 0, 5)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted((folder / "images").iterdir())])
    with np.load(folder / "START.npz") as start:
        drawn = records.reshape(-1, 3073)[start["batches"]]
    assert (drawn[..., 0] == dataset.labels[indices]).all()
    assert (drawn[..., 1:].reshape(5, 8, 3, 32, 32) == dataset.images[indices]).all()


@pytest.mark.slow
def test_a_folder_runs(run, little_data, tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "my scripts"
    options = ["--data", "synthetic", "--steps", "3", "--batch-size", "8", "--threads", "1"]
    assert run(str(folder), "--engines", "torch,torch+channels_last", *options).exit_code == 0
    done = subprocess.run(
        [folder / "run.sh"], capture_output=True, text=True, check=False, cwd="/", timeout=240
    )
    assert done.returncode == 0, done.stderr
    torch, other = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert len(torch["step_seconds"]) == 3
    assert other["losses"] == pytest.approx(torch["losses"], rel=1e-5)


def test_scripts_run_in_the_environments_of_their_cells(run, little_data, tmp_path):
    environment = tmp_path / "old"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    options = ["--data", "synthetic", "--steps", "3", "--batch-size", "8", "--env", f"old={environment}"]
    assert run(str(tmp_path / "scripts"), "--engines", "torch,torch@old", *options).exit_code == 0
    own, old = [
        line for line in (tmp_path / "scripts" / "run.sh").read_text().splitlines() if line.startswith("env ")
    ]
    assert f" {sys.executable} torch_cpu.py START.npz images" in own
    assert f" {environment}/bin/python torch@old_cpu.py START.npz images" in old
    assert "GLIBC_TUNABLES=" in own


def test_a_folder_is_for_scripts_only(tmp_path):
    app = typer.Typer()
    app.command()(compare)
    error = CliRunner().invoke(app, ["--engines", "fake", str(tmp_path / "out")]).exception
    assert isinstance(error, BadInput)
    assert "with --describe only" in str(error)


def test_a_file_is_no_folder(run, tmp_path):
    (tmp_path / "file").write_text("")
    error = run(str(tmp_path / "file"), "--engines", "torch", "--data", "synthetic").exception
    assert isinstance(error, BadInput)


def test_a_name_that_no_folder_can_have_is_said(run, tmp_path):
    error = run(str(tmp_path / ("x" * 300)), "--engines", "torch", "--data", "synthetic").exception
    assert isinstance(error, BadInput)
    assert "File name too long; name another folder" in str(error)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--engines", "tf+keras_fit"], "the variant keras_fit"),
        (
            ["--engines", "torch", "--model", "catdog-2"],
            "the network catdog-2; they are written by hand, for lenet, ",
        ),
        (["--engines", "torch", "--precision", "bf16"], "the precision bf16"),
        (["--engines", "torch", "--optimizer", "adam"], "the optimizer adam"),
    ],
)
def test_says_why_there_is_no_script(options, why, run):
    assert f"no plain script for {why}" in run(*options).stdout


def test_what_there_is_instead_of_a_script_is_said_of_an_environment_too() -> None:
    options = ["--engines", "torch@x,tf", "--env", f"x={sys.prefix}", "--model", "char-lstm"]
    result = CliRunner().invoke(app, ["compare", *options, "--data", "synthetic", "--describe"])
    assert "no environment" not in str(result.exception)
    assert f"--env x={sys.prefix}" in f"{result.output}{result.exception}"
