"""`polybench scripts`: plain programs, printed or written into a folder."""

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
from polybench.cli.scripts import scripts
from polybench.data import open_dataset, synthetic
from polybench.data.batches import batch_stream
from polybench.errors import BadInput
from polybench.machine import cores

MY_NET = Path(__file__).parents[2] / "examples" / "my_net.toml"


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(scripts)
    return lambda *arguments: CliRunner().invoke(app, ["--devices", "cpu", *arguments])


def test_prints_each_configuration_once_and_runs_nothing(run):
    result = run(
        "--engines", "torch,torch,tf+xla", "--data", "cifar10", "--steps-per-round", "30", "--batch-size", "64"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.count("# torch/cpu\n") == 1
    assert "# tf+xla/cpu\n" in result.stdout
    assert result.stdout.count("STEPS = 30\n") == 2
    assert "--batch-size 64 --steps 32 --data cifar10 " in result.stdout  # two of the steps are untimed
    assert result.stdout.count("step_seconds") == 2


def test_the_output_for_one_configuration_is_a_program(run):
    tree = ast.parse(run("--engines", "torch", "--learning-rate", "0.5").stdout)
    assert ast.get_docstring(tree)
    assert "LEARNING_RATE = 0.5" in ast.unparse(tree)


def test_a_configuration_without_a_script_is_a_comment(run):
    result = run("--engines", "reference,tf+keras_fit")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.split("\n") if line] == [
        "# reference/cpu",
        "# tf+keras_fit/cpu",
    ]
    assert "no plain script" in result.stdout


def test_a_network_file_without_a_script_suggests_scripts_of_layers(run):
    output = run("--engines", "torch", "--model", str(MY_NET), "--data", "synthetic").stdout
    assert "no plain script for the network my_net~" in output
    assert "hand-written for lenet, resnet32, dlframeworks-cnn, imdb-bilstm" in output
    command = output.partition("pooling and ReLU: ")[2].split()
    assert command[:2] == ["polybench", "layers"]
    assert command[command.index("--model") + 1] == "my_net.toml"
    assert command[-2:] == ["--scripts", "FOLDER"]


def test_a_variant_without_a_script_suggests_nothing(run):
    output = run("--engines", "tf+keras_fit").stdout
    assert output.strip() == "# tf+keras_fit/cpu: no plain script for the variant keras_fit"


def test_synthetic_images_need_a_folder(run):
    assert (
        "# It reads synthetic images from a file; write one with: polybench scripts -o FOLDER"
        in run("--engines", "torch", "--data", "synthetic").stdout
    )


def test_prints_the_command_that_sets_malloc_policy_and_cpus(run):
    assert "the malloc policy of polybench's workers, run it with: GLIBC_TUNABLES=" in run("--engines", "torch").stdout
    chosen = cores.select_cores(cores.physical_cores(), 1)[0]
    output = run("--engines", "torch,tf", "--pin-cpus", "--threads", "1").stdout
    assert output.count("# To use the malloc policy and CPUs of polybench's workers, ") == 2
    assert output.count(f" taskset -c {chosen}\n") == 2


def test_an_unknown_engine_is_bad_input(run):
    assert isinstance(run("--engines", "torhc").exception, BadInput)


def test_an_input_pipeline_is_rejected(run):
    assert "--input pipeline: scripts exist for preloaded data only" in str(
        run("--engines", "torch", "--input", "pipeline").exception
    )


@pytest.fixture
def little_data(monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)


def test_a_folder_contains_only_what_its_scripts_need(run, little_data, tmp_path):
    folder = tmp_path / "scripts"
    options = ["--data", "synthetic", "--steps-per-round", "3", "--batch-size", "8", "--threads", "1"]
    result = run("-o", str(folder), "--engines", "torch,tf+xla,keras+torch,reference", *options)
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "torch_cpu.py", "tf+xla_cpu.py", "keras+torch_cpu.py", "initial_state.npz", "images", "run.sh"
    }  # fmt: skip
    assert "reference/cpu: no plain script for the engine reference" in result.stdout
    assert sum(path.stat().st_size for path in (folder / "images").iterdir()) == 5 * 8 * 3073
    dataset = open_dataset("synthetic", 0, tmp_path)
    indices = batch_stream(2000, 8, 0, 5)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted((folder / "images").iterdir())])
    with np.load(folder / "initial_state.npz") as start:
        drawn = records.reshape(-1, 3073)[start["batches"]]
    assert (drawn[..., 0] == dataset.labels[indices]).all()
    assert (drawn[..., 1:].reshape(5, 8, 3, 32, 32) == dataset.images[indices]).all()


@pytest.mark.slow
def test_the_scripts_of_a_folder_run(run, little_data, tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "my scripts"
    options = ["--data", "synthetic", "--steps-per-round", "3", "--batch-size", "8", "--threads", "1"]
    assert run("-o", str(folder), "--engines", "torch,torch+channels_last", *options).exit_code == 0
    done = subprocess.run([folder / "run.sh"], capture_output=True, text=True, check=False, cwd="/", timeout=240)
    assert done.returncode == 0, done.stderr
    torch, other = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert len(torch["step_seconds"]) == 3
    assert other["losses"] == pytest.approx(torch["losses"], rel=1e-5)


def test_scripts_use_the_environments_of_their_configurations(run, little_data, tmp_path):
    environment = tmp_path / "old"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    options = ["--data", "synthetic", "--steps-per-round", "3", "--batch-size", "8", "--env", f"old={environment}"]
    assert run("--output", str(tmp_path / "scripts"), "--engines", "torch,torch@old", *options).exit_code == 0
    own, old = [line for line in (tmp_path / "scripts" / "run.sh").read_text().splitlines() if line.startswith("env ")]
    assert f" {sys.executable} torch_cpu.py initial_state.npz images" in own
    assert f" {environment}/bin/python torch@old_cpu.py initial_state.npz images" in old
    assert "GLIBC_TUNABLES=" in own


def test_compare_takes_no_folder(tmp_path):
    result = CliRunner().invoke(app, ["compare", "--engines", "fake", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_file_is_rejected_as_a_folder(run, tmp_path):
    (tmp_path / "file").write_text("")
    error = run("-o", str(tmp_path / "file"), "--engines", "torch", "--data", "synthetic").exception
    assert isinstance(error, BadInput)
    assert "not a folder; name another one" in str(error)


def test_a_folder_name_that_is_too_long_is_reported(run, tmp_path):
    error = run("-o", str(tmp_path / ("x" * 300)), "--engines", "torch", "--data", "synthetic").exception
    assert isinstance(error, BadInput)
    assert "File name too long; name another folder" in str(error)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--engines", "tf+keras_fit"], "the variant keras_fit"),
        (
            ["--engines", "torch", "--model", "catdog-2"],
            "the network catdog-2; scripts are hand-written for lenet, ",
        ),
        (["--engines", "torch", "--precision", "bf16"], "the precision bf16"),
        (["--engines", "torch", "--optimizer", "adam"], "these settings of the optimizer adam"),
    ],
)
def test_a_missing_script_has_a_reason(options, reason, run):
    assert f"no plain script for {reason}" in run(*options).stdout


def test_the_suggested_layers_command_keeps_environments() -> None:
    options = ["--engines", "torch@x,tf", "--env", f"x={sys.prefix}", "--model", "char-lstm"]
    result = CliRunner().invoke(app, ["scripts", *options, "--data", "synthetic"])
    assert "no environment" not in str(result.exception)
    assert f"--env x={sys.prefix}" in f"{result.output}{result.exception}"
